//! The columns that a definition requests for Tables of its custom resources.

use serde::Deserialize;

/// One of the `additionalPrinterColumns` of a version, as in its definition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrinterColumn {
    pub name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    #[serde(default)]
    pub format: Box<str>,
    #[serde(default)]
    pub description: Box<str>,
    #[serde(default)]
    pub priority: i32,
    pub json_path: Box<str>,
}
