//! Usage in memory.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::quota::{Level, StoredAmount, Subject, Usage, UsageEntry, UsageFilter, UsageReport};
use semel_core::{StoreError, Timestamp};

use super::MemoryStore;

#[async_trait]
impl Usage for MemoryStore {
    async fn prepare(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let charge = |(subject, report): &(Subject, UsageReport)| {
            let entry = tables.usage.entry(subject.clone()).or_insert(UsageEntry::UNUSED);
            *entry = entry.charged(report, now);
            entry.level(now)
        };
        Ok(reports.iter().map(charge).collect())
    }

    async fn level(&self, subject: &Subject) -> Result<Level, StoreError> {
        let (tables, now) = (self.tables(), self.clock.now());
        Ok(tables.usage.get(subject).map_or(Level::default(), |entry| entry.level(now)))
    }

    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError> {
        let (tables, now) = (self.tables(), self.clock.now());
        let is_wanted = |(subject, _): &(&Subject, &UsageEntry)| {
            filter.tenant.as_deref().is_none_or(|tenant| tenant == subject.tenant())
                && filter.after.as_ref().is_none_or(|after| *subject > after)
        };
        let wanted = tables.usage.iter().filter(is_wanted).take(filter.limit);
        Ok((wanted.map(|(subject, entry)| (subject.clone(), *entry)).collect(), now))
    }

    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError> {
        let tables = self.tables();
        let mut kept = StoredAmount::default();
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
        let idle = tables.usage.iter().filter(|(_, entry)| entry.is_idle(idle, now));
        let gone: Vec<Subject> = idle.map(|(subject, _)| subject.clone()).take(limit).collect();
        for subject in &gone {
            tables.usage.remove(subject);
        }
        Ok(gone.len())
    }
}
