//! The transport of a case: records every request, and passes it on to the scripted server, or to the fault of its item.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{HeaderMap, Method};
use semel_client::{AttemptFault, AttemptRequest, Cancellation, ClientFuture, CommandResponse, Transport};
use serde_json::{Map, Value};

use crate::faults::RealTransport;
use crate::manual::ManualClock;
use crate::scripted_server::{ITEM_FIELD, ScriptedServer};

/// Request that was handed to the transport.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) authority: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) item: usize,
}

/// Script of one call. It is replaced by that of the next one.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) items: VecDeque<Map<String, Value>>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) surplus: usize,
    pub(crate) cancellation: Cancellation,
}

/// Transport around a real one. Clones are one transport.
#[derive(Clone)]
pub(crate) struct ScriptedTransport {
    real: RealTransport,
    server: Arc<ScriptedServer>,
    clock: ManualClock,
    script: Arc<Mutex<Script>>,
}

impl ScriptedTransport {
    pub(crate) fn new(
        real: RealTransport,
        server: Arc<ScriptedServer>,
        clock: ManualClock,
    ) -> ScriptedTransport {
        ScriptedTransport { real, server, clock, script: Arc::default() }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// Records a request; returns its item. Without one, the script is over.
    fn record(&self, request: &mut AttemptRequest) -> Option<(Map<String, Value>, Cancellation)> {
        let mut script = self.script();
        let Some(item) = script.items.pop_front() else {
            script.surplus += 1;
            return None;
        };
        let number = self.server.add(item.clone());
        let url = &request.url;
        script.sent.push(Sent {
            method: request.method.clone(),
            authority: url[url::Position::BeforeHost..url::Position::AfterPort].to_owned(),
            target: url[url::Position::BeforePath..url::Position::AfterQuery].to_owned(),
            headers: request.headers.clone(),
            body: request.body.to_vec(),
            item: number,
        });
        request.headers.insert(ITEM_FIELD, number.into());
        Some((item, script.cancellation.clone()))
    }
}

impl Transport for ScriptedTransport {
    fn send(&self, mut request: AttemptRequest) -> ClientFuture<'_, Result<CommandResponse, AttemptFault>> {
        Box::pin(async move {
            let Some((item, cancellation)) = self.record(&mut request) else {
                return Err(AttemptFault::UnknownHost);
            };
            let fault = item.get("fault").map_or("", |fault| fault.as_str().unwrap());
            match fault {
                "hang" => {
                    self.clock.expire_now();
                    return pending().await;
                }
                "cancel" => cancellation.cancel(),
                "connect_timeout" => {
                    self.clock.advance(u64::try_from(request.timeout.as_millis()).unwrap());
                }
                _ => {}
            }
            if let Some(origin) = self.real.origin(fault).await {
                self.clock.advance(item.get("elapse").map_or(0, |by| by.as_u64().unwrap()));
                self.clock.jump(item.get("jump").map_or(0, |by| by.as_i64().unwrap()));
                request.url = origin.parse().unwrap();
            }
            match fault {
                "connect_timeout" => self.real.impatient.send(request).await,
                _ => self.real.plain.send(request).await,
            }
        })
    }
}
