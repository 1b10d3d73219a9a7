//! Certificates of a test's own: an authority, one that nobody trusts, a server and a client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// All of them, in a folder that goes with the value.
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    /// `None`, and a line that says so, if this machine cannot make them; then the test passes,
    /// unless `SENTINEL_REDIS_REQUIRED` is set.
    pub(crate) fn make() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("sentinel-{}-certificates-{number}", std::process::id());
        let all = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&all.0).unwrap();
        fs::write(all.0.join("name"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let mut steps = Vec::new();
        for authority in ["ca", "other"] {
            steps.push(format!(
                "req -x509 {key} -days 2 -subj /CN={authority} -keyout {authority}.key -out \
                 {authority}.pem"
            ));
        }
        for (name, authority) in [("server", "ca"), ("client", "ca"), ("stranger", "other")] {
            steps.push(format!(
                "req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ));
            steps.push(format!(
                "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key \
                 -CAcreateserial -days 2 -extfile name -out {name}.pem"
            ));
        }
        if steps.iter().all(|arguments| run_openssl(&all.0, arguments)) {
            return Some(all);
        }
        let is_required = std::env::var_os("SENTINEL_REDIS_REQUIRED").is_some();
        assert!(!is_required, "there is no openssl");
        println!("SKIPPED, no openssl");
        None
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn text(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    /// The arguments of a server with TLS, which wants certificates of its clients or does not.
    pub(crate) fn arguments(&self, port: u16, wants_clients: bool) -> Vec<String> {
        let port = port.to_string();
        let clients = if wants_clients { "yes" } else { "no" };
        let (own, key) = (self.path("server.pem"), self.path("server.key"));
        let all = [
            ("--tls-port", port.as_str()),
            ("--tls-cert-file", own.as_str()),
            ("--tls-key-file", key.as_str()),
            ("--tls-ca-cert-file", &self.path("ca.pem")),
            ("--tls-auth-clients", clients),
        ];
        all.iter()
            .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
            .collect()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_openssl(folder: &Path, arguments: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl
        .args(arguments.split_whitespace())
        .current_dir(folder);
    let done = openssl.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}
