//! Tables of built-in resources. Each resource has its own rules, which are compiled into the API server and differ
//! between releases.
//!
//! A printer is a pure function of an object's JSON. The conformance suite compares it cell by cell with real servers
//! of the releases in [`Release`], over generated objects in all states that a server accepts. It is not used for other
//! releases.

mod autoscalers;
mod condition;
mod jobs;
mod networking;
mod nodes;
mod plain;
mod pods;
mod row;
mod selector;
mod services;
mod source;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;

use jiff::Timestamp;
use row::Row;
use source::Source;

use super::{ColumnDefinition, Unprintable};
use crate::store::Object;
use base::apimachinery::GroupVersionResource;

/// The releases whose Tables the conformance suite compares with these printers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    V1_20,
    V1_36,
}

impl Release {
    /// The release of a server version such as `v1.36.2`; `None` if no printer was compared with it.
    pub fn of(git_version: &str) -> Option<Self> {
        let mut numbers = git_version.strip_prefix('v')?.splitn(3, '.');
        let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let suffix = patch.split_once('-').map_or("", |(_, suffix)| suffix);
        if ["alpha", "beta", "rc"].iter().any(|early| suffix.starts_with(early)) {
            return None;
        }
        match (major, minor) {
            ("1", "20") => Some(Self::V1_20),
            ("1", "36") => Some(Self::V1_36),
            _ => None,
        }
    }
}

/// Prints the rows of one resource as one release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Printer {
    resource: Resource,
    release: Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    ConfigMaps,
    CronJobs,
    DaemonSets,
    Deployments,
    EndpointSlices,
    HorizontalPodAutoscalers,
    Ingresses,
    Jobs,
    Namespaces,
    Nodes,
    PersistentVolumeClaims,
    PersistentVolumes,
    Pods,
    ReplicaSets,
    Secrets,
    ServiceAccounts,
    Services,
    StatefulSets,
}

/// The conditions of a row, as a JSON array.
type Conditions = &'static str;

/// A column after the Name column: name, type and priority.
type Heading = (&'static str, &'static str, i32);

/// The text of most cells without a value.
const NONE: &str = "<none>";
const AGE: Heading = ("Age", "string", 0);

/// Whether there is a printer for a resource in any release.
pub fn has_printer(resource: &GroupVersionResource) -> bool {
    Resource::of(resource).is_some()
}

impl Resource {
    fn of(resource: &GroupVersionResource) -> Option<Self> {
        Some(match (&*resource.group, &*resource.version, &*resource.resource) {
            ("", "v1", "configmaps") => Self::ConfigMaps,
            ("", "v1", "namespaces") => Self::Namespaces,
            ("", "v1", "nodes") => Self::Nodes,
            ("", "v1", "persistentvolumeclaims") => Self::PersistentVolumeClaims,
            ("", "v1", "persistentvolumes") => Self::PersistentVolumes,
            ("", "v1", "pods") => Self::Pods,
            ("", "v1", "secrets") => Self::Secrets,
            ("", "v1", "serviceaccounts") => Self::ServiceAccounts,
            ("", "v1", "services") => Self::Services,
            ("apps", "v1", "daemonsets") => Self::DaemonSets,
            ("apps", "v1", "deployments") => Self::Deployments,
            ("apps", "v1", "replicasets") => Self::ReplicaSets,
            ("apps", "v1", "statefulsets") => Self::StatefulSets,
            ("autoscaling", "v2", "horizontalpodautoscalers") => Self::HorizontalPodAutoscalers,
            ("batch", "v1", "cronjobs") => Self::CronJobs,
            ("batch", "v1", "jobs") => Self::Jobs,
            ("discovery.k8s.io", "v1", "endpointslices") => Self::EndpointSlices,
            ("networking.k8s.io", "v1", "ingresses") => Self::Ingresses,
            _ => return None,
        })
    }
}

impl Printer {
    pub(super) fn of(resource: &GroupVersionResource, release: Release) -> Option<Self> {
        Some(Self { resource: Resource::of(resource)?, release })
    }

    /// The columns after the Name column.
    fn headings(self) -> &'static [Heading] {
        match self.resource {
            Resource::ConfigMaps => plain::CONFIG_MAPS,
            Resource::CronJobs => jobs::CRON_JOBS,
            Resource::DaemonSets => workloads::DAEMON_SETS,
            Resource::Deployments => workloads::DEPLOYMENTS,
            Resource::EndpointSlices => networking::ENDPOINT_SLICES,
            Resource::HorizontalPodAutoscalers => autoscalers::HEADINGS,
            Resource::Ingresses => networking::INGRESSES,
            Resource::Jobs => jobs::headings(self.release),
            Resource::Namespaces => plain::NAMESPACES,
            Resource::Nodes => nodes::HEADINGS,
            Resource::PersistentVolumeClaims => volumes::claim_headings(self.release),
            Resource::PersistentVolumes => volumes::volume_headings(self.release),
            Resource::Pods => pods::headings(self.release),
            Resource::ReplicaSets => workloads::REPLICA_SETS,
            Resource::Secrets => plain::SECRETS,
            Resource::ServiceAccounts => plain::service_accounts(self.release),
            Resource::Services => services::HEADINGS,
            Resource::StatefulSets => workloads::STATEFUL_SETS,
        }
    }

    /// Whether upstream has exactly these columns after the Name column. Their descriptions may differ.
    pub(super) fn prints(self, told: &[ColumnDefinition]) -> bool {
        let is_told = |((name, kind, priority), told): (&Heading, &ColumnDefinition)| {
            (*name, *kind, "", *priority) == (&*told.name, &*told.kind, &*told.format, told.priority)
        };
        told.len() == self.headings().len() && self.headings().iter().zip(told).all(is_told)
    }

    /// Appends the cells after the Name cell, with a comma in front of each. Returns the row's conditions.
    pub(super) fn put(
        self,
        object: &Object,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<Option<Conditions>, Unprintable> {
        let tail = object.tail();
        let (source, mut row) = (Source::of(object, &tail)?, Row::new(out, now));
        match self.resource {
            Resource::ConfigMaps => plain::config_map(&source, &mut row)?,
            Resource::CronJobs => jobs::cron_job(&source, &mut row)?,
            Resource::DaemonSets => workloads::daemon_set(&source, &mut row)?,
            Resource::Deployments => workloads::deployment(&source, &mut row)?,
            Resource::EndpointSlices => networking::endpoint_slice(&source, &mut row)?,
            Resource::HorizontalPodAutoscalers => autoscalers::print(&source, &mut row)?,
            Resource::Ingresses => networking::ingress(&source, &mut row)?,
            Resource::Jobs => jobs::print(self.release, &source, &mut row)?,
            Resource::Namespaces => plain::namespace(&source, &mut row)?,
            Resource::Nodes => nodes::print(self.release, &source, &mut row)?,
            Resource::PersistentVolumeClaims => volumes::claim(self.release, &source, &mut row)?,
            Resource::PersistentVolumes => volumes::volume(self.release, &source, &mut row)?,
            Resource::Pods => pods::print(self.release, &source, &mut row)?,
            Resource::ReplicaSets => workloads::replica_set(&source, &mut row)?,
            Resource::Secrets => plain::secret(&source, &mut row)?,
            Resource::ServiceAccounts => plain::service_account(self.release, &source, &mut row)?,
            Resource::Services => services::print(&source, &mut row)?,
            Resource::StatefulSets => workloads::stateful_set(&source, &mut row)?,
        }
        Ok(row.conditions)
    }
}
