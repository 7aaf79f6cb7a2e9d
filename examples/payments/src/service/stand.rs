//! Points at which a test kills the process: `PAYMENTS_STAND=after-charge` makes it print `standing at after-charge`
//! and block there. Without the variable, nothing here has an effect.

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use semel::protocol::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageWrite, Next, Outbox, Take,
};
use semel::protocol::{Note, StoreError, Timestamp};

/// Environment variable with the point.
pub const VARIABLE: &str = "PAYMENTS_STAND";

/// Points between every two steps of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The record, the payment and the message are written, and not committed.
    InTransaction,
    /// They are committed, and the client has no answer.
    AfterCommit,
    /// A worker is about to take the message.
    BeforeTake,
    /// The worker has taken the message.
    AfterTake,
    /// The worker is about to call the provider.
    BeforeCharge,
    /// The provider has answered, or the call timed out; nothing is stored.
    AfterCharge,
    /// The settlement is written, and not committed.
    InSettlement,
    /// The settlement is committed; the message is not marked.
    AfterSettlement,
    /// The message has the provider's reference, and is not marked.
    AfterReference,
    /// The message is marked as delivered, or for a retry.
    AfterMark,
}

impl Point {
    /// All points, in their order.
    pub const ALL: [Point; 10] = [
        Point::InTransaction,
        Point::AfterCommit,
        Point::BeforeTake,
        Point::AfterTake,
        Point::BeforeCharge,
        Point::AfterCharge,
        Point::InSettlement,
        Point::AfterSettlement,
        Point::AfterReference,
        Point::AfterMark,
    ];

    /// Returns the point's name in the variable.
    pub const fn name(self) -> &'static str {
        match self {
            Point::InTransaction => "in-transaction",
            Point::AfterCommit => "after-commit",
            Point::BeforeTake => "before-take",
            Point::AfterTake => "after-take",
            Point::BeforeCharge => "before-charge",
            Point::AfterCharge => "after-charge",
            Point::InSettlement => "in-settlement",
            Point::AfterSettlement => "after-settlement",
            Point::AfterReference => "after-reference",
            Point::AfterMark => "after-mark",
        }
    }
}

/// Returns the point at which this process is to block, if any.
fn wanted() -> Option<Point> {
    static WANTED: OnceLock<Option<Point>> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        Point::ALL.into_iter().find(|point| point.name() == name)
    })
}

/// Blocks here for ever, if this is the point.
pub(super) fn at(point: Point) {
    if wanted() != Some(point) {
        return;
    }
    let mut out = std::io::stdout();
    let _ = out.write_all(format!("standing at {}\n", point.name()).as_bytes()).and_then(|()| out.flush());
    loop {
        std::thread::park();
    }
}

/// Wraps an outbox, with points around the worker's writes.
pub(super) fn around(outbox: Arc<dyn Outbox>) -> Arc<dyn Outbox> {
    match wanted() {
        Some(_) => Arc::new(Standing(outbox)),
        None => outbox,
    }
}

struct Standing(Arc<dyn Outbox>);

#[async_trait]
impl Outbox for Standing {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        at(Point::BeforeTake);
        let taken = self.0.take(take).await;
        if taken.as_ref().is_ok_and(|messages| !messages.is_empty()) {
            at(Point::AfterTake);
        }
        taken
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        let accepted = self.0.accept(fence, reference).await;
        at(Point::AfterReference);
        accepted
    }

    async fn settle(
        &self,
        fence: &MessageFence,
        next: Next,
        why: Option<&str>,
    ) -> Result<MessageWrite, StoreError> {
        let settled = self.0.settle(fence, next, why).await;
        at(Point::AfterMark);
        settled
    }

    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        self.0.message(event_id).await
    }

    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        self.0.messages(filter).await
    }

    async fn intervene(&self, event_id: &str, what: Intervention, note: &Note) -> Result<bool, StoreError> {
        self.0.intervene(event_id, what, note).await
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.0.reap_messages(retention, limit).await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.0.depth().await
    }
}
