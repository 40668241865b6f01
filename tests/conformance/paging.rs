//! Pages whose continue tokens move from one server to the other, and versions that stay exact while others write.

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    Side,
    client::{Ask, Endpoint, version_of},
    events::key_of,
    gateway::unique_agent,
    report::Tally,
};

/// A custom resource, since both servers have it.
const GROUP: &str = "/apis/conf.example.com/v1";

pub(crate) async fn run(side: &Side) -> Result<Tally> {
    let mut tally = Tally::default();
    let all = format!("{GROUP}/widgets");
    let part = format!("{GROUP}/namespaces/conf/widgets");
    let direct = &side.server.endpoint;
    for (collection, selector) in
        [(&all, ""), (&part, ""), (&all, "&labelSelector=color=red"), (&part, "&labelSelector=color!=red")]
    {
        side.gateway.warm(collection).await?;
        let start = version_of(&side.gateway.endpoint.json(&format!("{collection}?resourceVersion=0")).await?);
        // The whole collection at that version, from storage, before anything changes.
        let expected =
            direct.json(&format!("{collection}?resourceVersion={start}&resourceVersionMatch=Exact{selector}")).await?;
        let expected: Vec<_> = expected["items"].as_array().into_iter().flatten().map(identity).collect();
        for first_is_gateway in [true, false] {
            let found = chain(side, &mut tally, collection, selector, start, first_is_gateway).await?;
            tally.equal(&format!("pages of {collection}{selector} at {start}"), &expected, &found);
        }
    }
    Ok(tally)
}

/// All pages of a version, alternately from the gateway and from the server, with a write between any two.
async fn chain(
    side: &Side,
    tally: &mut Tally,
    collection: &str,
    selector: &str,
    version: u64,
    mut is_gateways_turn: bool,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut query = format!("resourceVersion={version}&limit=2{selector}");
    for page in 0..20 {
        let agent = unique_agent("page");
        let ask = Ask::get(format!("{collection}?{query}")).header("user-agent", &agent);
        let endpoint = if is_gateways_turn { &side.gateway.endpoint } else { &side.server.endpoint };
        let list = endpoint.send(&ask).await?.expect_success(&ask.path)?;
        if is_gateways_turn {
            let outcome = side.gateway.outcome(&agent).await?;
            tally.holds(&format!("{} from memory", ask.path), outcome.by == "served", || format!("{outcome:?}"));
            tally.answered(&outcome);
        }
        tally.equal(&format!("version of {}", ask.path), &version, &version_of(&list));
        let items = list["items"].as_array().context("no items")?;
        found.extend(items.iter().map(identity));
        let token = list["metadata"]["continue"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Ok(found);
        }
        query = format!("limit=2&continue={token}{selector}");
        is_gateways_turn = !is_gateways_turn;
        write(&side.server.endpoint, page).await?;
    }
    anyhow::bail!("{collection}: pages without end")
}

fn identity(item: &serde_json::Value) -> String {
    format!("{} {}", key_of(item), version_of(item))
}

/// Creates an object and changes another one: a list of the current state would show both.
async fn write(api: &Endpoint, page: usize) -> Result<()> {
    let widgets = format!("{GROUP}/namespaces/conf/widgets");
    let metadata = json!({"generateName": "paging-", "labels": {"color": "red"}});
    let object = json!({"apiVersion": "conf.example.com/v1", "kind": "Widget", "metadata": metadata});
    let created = api.create(&widgets, &object).await?;
    api.patch(&format!("{widgets}/w-00"), &json!({"metadata": {"annotations": {"page": format!("{page}")}}})).await?;
    api.delete(&format!("{widgets}/{}", created["metadata"]["name"].as_str().context("no name")?)).await?;
    Ok(())
}
