//! A slow or broken line to the sink: passes bytes between a worker and PostgreSQL until it is told otherwise.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What the line does with the next message of the client that holds `trigger`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    /// Passes it on.
    Pass,
    /// Keeps it, and all that comes after it, until [`Proxy::release`].
    Hold { trigger: &'static str },
    /// Breaks the connection, after the server has answered or before it has seen the message.
    Cut { trigger: &'static str, answered: bool },
    /// The order was carried out.
    Done,
    /// It was, and everything waits.
    Holding,
}

/// A line to the sink.
pub struct Proxy {
    port: u16,
    order: Arc<watch::Sender<Order>>,
    listening: AbortHandle,
}

impl Proxy {
    /// Opens a line to the server of a `postgres://user@host:port/database`.
    pub async fn open(url: &str) -> Result<Proxy> {
        let server = server_of(url)?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("open a proxy")?;
        let port = listener.local_addr()?.port();
        let order = Arc::new(watch::Sender::new(Order::Pass));
        let orders = Arc::clone(&order);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(line(client, server.clone(), Arc::clone(&orders)));
            }
        });
        Ok(Proxy { port, order, listening: task.abort_handle() })
    }

    /// Returns `url` with this line in the place of its server.
    pub fn of(&self, url: &str) -> Result<String> {
        Ok(url.replace(server_of(url)?, &format!("127.0.0.1:{}", self.port)))
    }

    /// Holds the line when the client sends `trigger`, and returns when it did.
    pub async fn hold_at(&self, trigger: &'static str) -> Result<()> {
        self.order.send_replace(Order::Hold { trigger });
        self.order.subscribe().wait_for(|order| *order == Order::Holding).await?;
        Ok(())
    }

    /// Cuts the connection on which the client sends `trigger`: after the server has answered, which nobody hears, or
    /// before it has seen it. Returns when it did.
    pub async fn cut_at(&self, trigger: &'static str, answered: bool) -> Result<()> {
        self.order.send_replace(Order::Cut { trigger, answered });
        self.order.subscribe().wait_for(|order| *order == Order::Done).await?;
        Ok(())
    }

    /// Passes everything on.
    pub fn release(&self) {
        self.order.send_replace(Order::Pass);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn server_of(url: &str) -> Result<&str> {
    let rest = url.split_once('@').context("no user in the URL")?.1;
    Ok(rest.split_once('/').context("no database in the URL")?.0)
}

/// Passes bytes both ways until one side ends.
async fn line(client: TcpStream, server: String, order: Arc<watch::Sender<Order>>) {
    let Ok(server) = TcpStream::connect(&server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            // What the server says goes first: a cut must not take an answer with it that was there before.
            biased;
            read = from_server.read(&mut answered) => match read {
                Ok(length) if length > 0 => {
                    if to_client.write_all(&answered[..length]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            read = from_client.read(&mut asked) => match read {
                Ok(length) if length > 0 => {
                    if !carry_out(&order, &asked[..length], &mut to_server, &mut from_server).await
                        || to_server.write_all(&asked[..length]).await.is_err()
                    {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

/// Carries the order out. Returns whether the message is to be passed on.
async fn carry_out(
    order: &watch::Sender<Order>,
    message: &[u8],
    to_server: &mut (impl AsyncWriteExt + Unpin),
    from_server: &mut (impl AsyncReadExt + Unpin),
) -> bool {
    let holds = |trigger: &str| message.windows(trigger.len()).any(|part| part == trigger.as_bytes());
    let mut cut = None;
    order.send_if_modified(|order| match *order {
        Order::Hold { trigger } if holds(trigger) => {
            *order = Order::Holding;
            true
        }
        Order::Cut { trigger, answered } if holds(trigger) => {
            // Told when it is done.
            *order = Order::Pass;
            cut = Some(answered);
            false
        }
        _ => false,
    });
    if let Some(answered) = cut {
        if answered {
            let _ = to_server.write_all(message).await;
            let _ = from_server.read(&mut [0; 1 << 10]).await;
        }
        order.send_replace(Order::Done);
        return false;
    }
    // Other connections wait as well while one is held: the line is one.
    let _ = order.subscribe().wait_for(|order| *order != Order::Holding).await;
    true
}
