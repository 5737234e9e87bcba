//! A small service, and a client to send it requests.
#![allow(dead_code, missing_docs, reason = "each test file uses some of it")]

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response};
use wire::{
    BodyError, Chunk, Client, ClientConfig, Deadlines, Incoming, Limits, Origin, Outgoing, Refusal, Refused,
    RequestHead, SendError, Server, ServerConfig, Service, Source, SourceError, Worker, Workers,
    WorkersConfig, run_local,
};

pub(crate) struct Echo;

impl Service for Echo {
    async fn call(&self, request: Request<Incoming>) -> Response<Outgoing> {
        match request.uri().path() {
            "/forward" => Response::new(request.into_body().forward()),
            "/ignore" => Response::new("ignored".into()),
            "/big" => Response::new(vec![b'x'; 30 << 20].into()),
            "/hang" => Response::new(Outgoing::stream(Hangs { begun: false }, None)),
            "/break" => Response::new(Outgoing::stream(Breaks { bytes: 0 }, None)),
            "/break-late" => Response::new(Outgoing::stream(Breaks { bytes: 300_000 }, None)),
            "/slow" => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.collect(request).await
            }
            "/wait" => {
                let _body = self.collect(request).await;
                std::future::pending().await
            }
            _ => self.collect(request).await,
        }
    }

    fn refuse(&self, refusal: Refusal, _: Refused<'_>) -> Response<Outgoing> {
        answer(refusal.status().as_u16(), refusal.reason())
    }
}

impl Echo {
    async fn collect(&self, request: Request<Incoming>) -> Response<Outgoing> {
        match request.into_body().collect(50 << 20).await {
            Ok(body) => Response::new(body.into()),
            Err(BodyError::OverBudget(over)) => answer(429, over.to_string()),
            Err(error) => match error.refusal() {
                Some(refusal) => self.refuse(refusal, Refused::default()),
                None => answer(400, error.to_string()),
            },
        }
    }
}

/// A body that breaks off after `bytes` bytes.
struct Breaks {
    bytes: usize,
}

impl Source for Breaks {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        Poll::Ready(Some(match std::mem::take(&mut self.bytes) {
            0 => Err("it broke off".into()),
            bytes => Ok(vec![b'x'; bytes].into()),
        }))
    }
}

/// A body that begins, and goes on no more.
struct Hangs {
    begun: bool,
}

impl Source for Hangs {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        match std::mem::replace(&mut self.begun, true) {
            true => Poll::Pending,
            false => Poll::Ready(Some(Ok("begun".into()))),
        }
    }
}

fn answer(status: u16, text: String) -> Response<Outgoing> {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = http::StatusCode::from_u16(status).expect("status");
    answer
}

pub(crate) fn echo_server(limits: Limits) -> (Workers, Server) {
    let mut config = ServerConfig::on(([127, 0, 0, 1], 0).into());
    config.limits = limits;
    echo_server_with(config)
}

pub(crate) fn echo_server_with(config: ServerConfig) -> (Workers, Server) {
    echo_server_within(config, wire::BUDGET_BYTES_DEFAULT)
}

pub(crate) fn echo_server_within(config: ServerConfig, budget_bytes: usize) -> (Workers, Server) {
    let workers = Workers::start(WorkersConfig {
        count: 1,
        budget_bytes,
        ..Default::default()
    })
    .expect("starts");
    let server = Server::start(&workers, config, |_: &Worker| Rc::new(Echo)).expect("listens");
    (workers, server)
}

pub(crate) fn with_client<F, Fut>(use_it: F)
where
    F: FnOnce(Client) -> Fut,
    Fut: Future<Output = ()>,
{
    run_local(192 << 20, |worker| {
        use_it(Client::new(ClientConfig::default(), worker.pool().clone()))
    })
    .expect("runtime");
}

pub(crate) async fn ask(
    client: &Client,
    origin: &Origin,
    path: &str,
    body: Outgoing,
) -> Result<(u16, Vec<u8>), SendError> {
    let headers = HeaderMap::new();
    let head = RequestHead {
        method: &Method::POST,
        target: path,
        headers: &headers,
    };
    let reply = client
        .send(origin, head, body, Deadlines::within(Duration::from_secs(20)))
        .await?;
    let status = reply.status().as_u16();
    Ok((status, reply.into_body().collect(64 << 20).await?.to_vec()))
}
