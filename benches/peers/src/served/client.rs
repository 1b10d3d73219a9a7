//! A client that keeps sixteen requests on their way.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const CONNECTIONS: usize = 16;
const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n";
const END: &[u8] = b"\r\n\r\nhello";

pub(crate) struct Client(Vec<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let connect = |_| {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("an option of TCP");
            stream
        };
        Self((0..CONNECTIONS).map(connect).collect())
    }

    /// Sends so many requests, a multiple of the connections, and waits for their
    /// answers.
    pub(crate) fn send(&mut self, requests: usize) {
        for _ in 0..requests / CONNECTIONS {
            for stream in &mut self.0 {
                stream.write_all(REQUEST).expect("it is open");
            }
            self.0.iter_mut().for_each(expect_hello);
        }
    }
}

fn expect_hello(stream: &mut TcpStream) {
    let mut answer = [0; 1_024];
    let mut length = 0;
    while !answer[..length].ends_with(END) {
        let read = stream.read(&mut answer[length..]).expect("it is open");
        assert!(read > 0, "the server has closed the connection");
        length += read;
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "it was refused");
}
