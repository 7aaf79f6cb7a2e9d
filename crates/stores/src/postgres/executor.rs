//! The interface that the statements need of a connection. The store's own connections implement it, and so
//! can the connection of a service's own transaction: the SQL about records is written once.

use bytes::Bytes;

use super::errors::DbError;

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub enum SqlValue<'a> {
    /// `bytea`
    Bytes(Option<&'a [u8]>),
    /// `text`
    Text(Option<&'a str>),
    /// `bigint`
    Int(Option<i64>),
    /// `uuid`
    Uuid([u8; 16]),
    /// `bytea[]`
    BytesList(Vec<Option<&'a [u8]>>),
    /// `text[]`
    TextList(Vec<Option<&'a str>>),
    /// `bigint[]`
    IntList(Vec<Option<i64>>),
    /// `uuid[]`
    UuidList(Vec<[u8; 16]>),
}

/// A value in a result row.
#[derive(Clone, Debug)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// `bytea`
    Bytes(Bytes),
    /// `text`
    Text(String),
    /// `bigint`
    Int(i64),
    /// `uuid`
    Uuid([u8; 16]),
}

/// A result row.
#[derive(Clone, Debug)]
pub struct SqlRow(pub Vec<Cell>);

impl SqlRow {
    /// Returns the integer in this column, if there is one.
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        match self.0.get(column) {
            Some(Cell::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns the integer in the last column, if there is one.
    pub(super) fn last_int(&self) -> Option<i64> {
        self.int(self.0.len().checked_sub(1)?)
    }

    /// Returns the text in this column, if there is one.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        match self.0.get(column) {
            Some(Cell::Text(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the bytes in this column, if there are some.
    pub(super) fn bytes(&self, column: usize) -> Option<&Bytes> {
        match self.0.get(column) {
            Some(Cell::Bytes(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the id in this column, if there is one.
    pub(super) fn uuid(&self, column: usize) -> Option<[u8; 16]> {
        match self.0.get(column) {
            Some(Cell::Uuid(value)) => Some(*value),
            _ => None,
        }
    }
}

/// Sends statements over one connection, one after the other.
pub trait Executor: Send {
    /// True in a transaction of a service's own, which `begin` began. It waits for a claim for a shorter time
    /// than for other locks, and its owner may end it.
    const JOINED: bool = false;

    /// Tells the executor that the COMMIT of this transaction waits for standbys, or not.
    fn commit_waits(&mut self, _waits: bool) {}

    /// Sends one statement with its parameters, and returns its rows.
    fn query(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> impl Future<Output = Result<Vec<SqlRow>, DbError>> + Send;

    /// Sends statements without parameters and rows.
    fn run(&mut self, sql: &'static str) -> impl Future<Output = Result<(), DbError>> + Send;
}
