//! Objects that look like those of a real cluster, and changes to them. Deterministic, except for uids and times.

mod churn;
mod objects;
mod pods;

use fastrand::Rng;
use serde_json::{Map, Value, json};

pub use churn::Churn;

use crate::{Refused, Sim};

/// The namespaces of the objects.
const NAMESPACES: [&str; 10] =
    ["billing", "catalog", "checkout", "data", "gateway", "identity", "media", "monitoring", "search", "shipping"];
const SEED: u64 = 20_260_101;

impl Sim {
    /// Fills the server with about `objects` objects: mostly pods of 3 to 8 KB, and the nodes, deployments, services,
    /// config maps and custom resources that belong to them. Must be called at most once. Returns the number of nodes,
    /// which are named `node-0` and so on.
    ///
    /// # Errors
    /// Objects with these names already exist.
    pub fn populate(&self, objects: usize) -> Result<usize, Refused> {
        let mut rng = Rng::with_seed(SEED);
        for name in NAMESPACES {
            self.insert(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
        }
        self.insert(objects::backup_definition())?;
        let nodes = (objects / 50).max(3);
        for index in 0..nodes {
            self.insert(objects::node(index))?;
        }
        // 14 of the 20 objects of an application are pods.
        let applications = (objects.saturating_sub(nodes) / 20).max(1);
        for index in 0..applications {
            let application = Application::new(index);
            self.insert(objects::deployment(&application))?;
            self.insert(objects::service(&application, index))?;
            self.insert(objects::backup(&application, index))?;
            for part in ["config", "features", "trust-bundle"] {
                self.insert(objects::config_map(&application, part, &mut rng))?;
            }
            for _ in 0..14 {
                self.insert(pods::pod(&application, nodes, &mut rng))?;
            }
        }
        Ok(nodes)
    }
}

/// One deployment and all objects that belong to it.
#[derive(Clone, Debug)]
struct Application {
    namespace: String,
    name: String,
    tier: &'static str,
}

impl Application {
    fn new(index: usize) -> Self {
        let words = ["api", "worker", "web", "cache", "indexer", "scheduler", "exporter", "mailer"];
        let name = format!("{}-{}", words[index % words.len()], index / NAMESPACES.len());
        let namespace = NAMESPACES[index % NAMESPACES.len()].to_owned();
        Self { namespace, name, tier: ["frontend", "backend", "batch"][index % 3] }
    }

    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/name": self.name, "app.kubernetes.io/part-of": self.namespace, "tier": self.tier})
    }
}

/// An entry of `managedFields` that owns all fields of a value, as the API server would write it.
fn managed_by(manager: &str, subresource: Option<&str>, owned: &Value) -> Value {
    let now = crate::write::now();
    let mut entry = json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": now,
        "fieldsType": "FieldsV1", "fieldsV1": fields_of(owned)});
    if let Some(subresource) = subresource {
        entry["subresource"] = subresource.into();
    }
    entry
}

fn fields_of(value: &Value) -> Value {
    let mut fields = Map::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let named = |items: &&Vec<Value>| items.iter().all(|item| item.get("name").is_some());
        let owned = if let Some(items) = value.as_array().filter(named) {
            let own = |item: &Value| (format!("k:{{\"name\":{}}}", item["name"]), with_itself(fields_of(item)));
            with_itself(items.iter().map(own).collect())
        } else if value.is_object() {
            with_itself(fields_of(value))
        } else {
            json!({})
        };
        fields.insert(format!("f:{key}"), owned);
    }
    fields.sort_keys();
    fields.into()
}

fn with_itself(fields: Value) -> Value {
    let mut all = json!({".": {}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

/// Lower-case letters and digits, as in the names that controllers make.
fn suffix(rng: &mut Rng, length: usize) -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    (0..length).map(|_| char::from(letters[rng.usize(..letters.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::apimachinery::GroupResource;

    #[test]
    fn a_population_has_the_requested_size_and_realistic_pods() {
        let sim = Sim::new();
        sim.populate(200).unwrap();
        let objects = |group: &str, resource: &str| {
            sim.objects(&GroupResource { group: group.into(), resource: resource.into() }).unwrap()
        };
        let pods = objects("", "pods");
        let sizes: Vec<_> = pods.iter().map(|pod| pod.to_string().len()).collect();
        assert!(sizes.iter().all(|size| (3_000..8_000).contains(size)), "{sizes:?}");
        let rest = ["nodes", "services", "configmaps"].map(|resource| objects("", resource).len());
        let all = pods.len() + rest.iter().sum::<usize>() + objects("apps", "deployments").len();
        assert!((170..=200).contains(&(all + objects("demo.kube-fanout.io", "backups").len())), "{all} and backups");
    }

    #[tokio::test(start_paused = true)]
    async fn churn_keeps_its_rate_and_the_number_of_pods() {
        let sim = Sim::new();
        sim.populate(100).unwrap();
        let before = sim.revision();
        let churn = Churn::new(&sim);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(10), churn.run(20.0)).await;
        assert!(ended.is_err(), "churn continues until it is dropped");
        let changes = sim.revision() - before;
        assert!((195..=205).contains(&changes), "{changes}");
        let pods = sim.objects(&GroupResource { group: "".into(), resource: "pods".into() }).unwrap().len();
        assert!((50..=58).contains(&pods), "{pods}");
    }
}
