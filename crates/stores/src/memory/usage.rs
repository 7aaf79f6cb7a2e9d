//! Usage in memory.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::StoreError;
use semel_core::quota::{Kept, Subject, Usage, Used};

use super::MemoryStore;

#[async_trait]
impl Usage for MemoryStore {
    async fn prepare(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn add(&self, used: &[(Subject, Used)]) -> Result<Vec<Used>, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let add = |(subject, used): &(Subject, Used)| {
            let (total, at) = tables.usage.entry(subject.clone()).or_insert((Used::default(), now));
            total.new_keys += used.new_keys;
            total.lookups += used.lookups;
            *at = now;
            *total
        };
        Ok(used.iter().map(add).collect())
    }

    async fn kept(&self, subject: &Subject) -> Result<Kept, StoreError> {
        let tables = self.tables();
        let mut kept = Kept::default();
        for record in tables.records.values() {
            let is_its = record.principal.tenant() == subject.tenant()
                && subject.caller().is_none_or(|caller| caller == record.principal.caller());
            if is_its {
                let response = record.result.as_ref().map_or(0, |result| result.response.bytes.len());
                let request = tables.requests.get(&record.operation_id).map_or(0, |kept| kept.bytes.len());
                kept.keys += 1;
                kept.bytes += (response + request) as u64;
            }
        }
        Ok(kept)
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let is_idle = |(_, (_, at)): &(&Subject, &(Used, _))| now.since(*at) >= idle;
        let gone: Vec<Subject> =
            tables.usage.iter().filter(is_idle).map(|(subject, _)| subject.clone()).take(limit).collect();
        for subject in &gone {
            tables.usage.remove(subject);
        }
        Ok(gone.len())
    }
}
