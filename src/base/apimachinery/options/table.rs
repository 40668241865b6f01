//! The parameters of a Table.

use crate::apimachinery::options::InvalidOptions;
use crate::apimachinery::query::Query;

/// The part of the object that a row contains besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    /// Parses the query.
    ///
    /// # Errors
    /// The API server refuses the query: the request must be forwarded.
    pub fn parse(query: Option<&str>) -> Result<Self, InvalidOptions> {
        match Query::parse(query)?.first("includeObject") {
            Some("None") => Ok(Self::None),
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some(_) => Err(InvalidOptions::Unsupported("includeObject")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_object_has_three_values() {
        for (query, expected) in [
            (None, Some(IncludeObject::Metadata)),
            (Some("includeObject="), Some(IncludeObject::Metadata)),
            (Some("includeObject=Metadata"), Some(IncludeObject::Metadata)),
            (Some("limit=500&includeObject=None&includeObject=x"), Some(IncludeObject::None)),
            (Some("includeObject=Object"), Some(IncludeObject::Object)),
            (Some("includeObject=object"), None),
            (Some("includeObject=%"), None),
        ] {
            assert_eq!(IncludeObject::parse(query).ok(), expected, "{query:?}");
        }
    }
}
