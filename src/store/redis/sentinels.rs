//! Sentinels, which know the present master of a group of servers.

use std::error::Error;
use std::{fmt, io};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
};

use super::answer::cause;
use super::link::CONNECTS;
use super::servers::{more_telling, with_address};

/// The error if no Sentinel that answers knows a master of the configured name.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownMaster;

/// Asks the Sentinels in sequence for the present master. If no Sentinel knows it, returns the
/// error that says most about the cause.
pub(super) async fn find_master(
    sentinels: Vec<ConnectionInfo>,
    master: ConnectionInfo,
) -> RedisResult<ConnectionInfo> {
    let name = match master.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    };
    // Each Sentinel may take a quarter of the time to connect. Most Sentinels are up and answer at
    // once.
    let each = CONNECTS / 4;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(each))
        .set_response_timeout(Some(each));
    let mut failed = None;
    for sentinel in sentinels {
        let asked = async {
            let client = Client::open(sentinel)?;
            let mut link = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(&name);
            command.query_async(&mut link).await
        };
        let found: RedisResult<Option<(String, u16)>> = asked.await;
        let error = match found {
            Ok(Some((host, port))) => {
                let at = with_address(master.addr(), host, port);
                return Ok(master.set_addr(at));
            }
            Ok(None) => UnknownMaster.into(),
            Err(error) => error,
        };
        failed = Some(more_telling(failed, error));
    }
    Err(failed.unwrap_or_else(|| UnknownMaster.into()))
}

impl UnknownMaster {
    /// Returns the `UnknownMaster` from which `error` was made, if any.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let io = cause(error)?.downcast_ref::<io::Error>()?;
        io.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for UnknownMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no Sentinel knows a master of that name")
    }
}

impl Error for UnknownMaster {}

impl From<UnknownMaster> for RedisError {
    fn from(unknown: UnknownMaster) -> Self {
        io::Error::other(unknown).into()
    }
}
