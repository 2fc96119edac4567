//! Where a checkout is to be found: which database, and which gateway and mail service go with it? For the commands that look at one from
//! outside.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::unless_empty;

/// How a place is named on the command line. Without any of them: the running demo's usual one.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// The data folder of the running demo.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The checkout's database, instead of the running demo's; goes with --gateway-url.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The gateway that belongs to it; goes with --database-url.
    #[arg(long, env = "CHECKOUT_GATEWAY_URL")]
    pub gateway_url: Option<String>,
    /// The mail service that belongs to it; goes with --database-url.
    #[arg(long, env = "CHECKOUT_MAIL_URL")]
    pub mail_url: Option<String>,
}

/// How a place is named to a command that asks its database and nobody else.
#[derive(Debug, Clone, Args)]
pub struct DatabasePlaceArgs {
    /// The data folder of the running demo.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The checkout's database, instead of the running demo's.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
}

impl DatabasePlaceArgs {
    /// A data folder that was named wins over the environment.
    pub fn database_url(
        &self,
        find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
    ) -> anyhow::Result<String> {
        match (&self.data_dir, unless_empty(self.database_url.clone())) {
            (None, Some(database_url)) => Ok(database_url),
            (data_dir, _) => Ok(find_demo(data_dir.as_deref())?.database_url),
        }
    }
}

/// Where a checkout is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub database_url: String,
    pub gateway_url: String,
    /// Not every command asks it, so it may be missing.
    pub mail_url: Option<String>,
}

impl Place {
    /// A data folder that was named wins over the environment. A database URL alone is the running demo's own, or half a pair:
    /// a mistake, not a wish.
    pub fn find(
        args: &PlaceArgs,
        find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Self>,
    ) -> anyhow::Result<Self> {
        let given = |url: &Option<String>| unless_empty(url.clone());
        let mail_url = given(&args.mail_url);
        match (&args.data_dir, given(&args.database_url), given(&args.gateway_url)) {
            (Some(data_dir), ..) => find_demo(Some(data_dir)),
            (None, Some(database_url), Some(gateway_url)) => Ok(Self { database_url, gateway_url, mail_url }),
            (None, None, None) if mail_url.is_none() => find_demo(None),
            (None, None, None) => anyhow::bail!(
                "a mail URL is given (CHECKOUT_MAIL_URL, perhaps), but no database: name it with --database-url"
            ),
            (None, Some(database_url), None) => match find_demo(None) {
                Ok(demo) if demo.database_url == database_url => {
                    Ok(Self { mail_url: mail_url.or(demo.mail_url), ..demo })
                }
                Ok(_) => anyhow::bail!(
                    "a database URL is given (DATABASE_URL, perhaps), and the running demo uses another database: \
                     name the gateway with --gateway-url, or unset DATABASE_URL to judge the demo"
                ),
                Err(error) => Err(error.context(
                    "a database URL is given (DATABASE_URL, perhaps), but no gateway: name it with --gateway-url",
                )),
            },
            (None, None, Some(_)) => anyhow::bail!(
                "a gateway URL is given (CHECKOUT_GATEWAY_URL, perhaps), but no database: name it with --database-url"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(data_dir: Option<&str>, database_url: Option<&str>, gateway_url: Option<&str>) -> PlaceArgs {
        PlaceArgs {
            mail_url: None,
            data_dir: data_dir.map(PathBuf::from),
            database_url: database_url.map(str::to_owned),
            gateway_url: gateway_url.map(str::to_owned),
        }
    }

    fn demo(data_dir: Option<&Path>) -> anyhow::Result<Place> {
        let name = data_dir.map_or("usual".to_owned(), |dir| dir.display().to_string());
        Ok(Place { database_url: name.clone(), mail_url: Some(format!("{name}'s mail")), gateway_url: name })
    }

    fn database(args: PlaceArgs) -> Option<String> {
        Place::find(&args, demo).ok().map(|place| place.database_url)
    }

    #[test]
    fn a_named_folder_wins_over_urls_and_half_a_pair_of_urls_is_refused_unless_it_is_the_demos() {
        assert_eq!(database(args(None, Some("usual"), None)), Some("usual".to_owned()));
        assert_eq!(database(args(None, Some(""), Some(""))), Some("usual".to_owned()));
        assert_eq!(database(args(Some("/data"), Some("db"), None)), Some("/data".to_owned()));
        assert_eq!(database(args(None, Some("db"), Some("gateway"))), Some("db".to_owned()));
        assert_eq!(database(args(None, None, None)), Some("usual".to_owned()));
        assert_eq!(database(args(None, Some("db"), None)), None);
        assert_eq!(database(args(None, None, Some("gateway"))), None);
    }

    #[test]
    fn a_database_is_found_by_its_folder_then_by_its_url_then_at_the_usual_place() {
        let found = |data_dir: Option<&str>, database_url: Option<&str>| {
            let args = DatabasePlaceArgs {
                data_dir: data_dir.map(PathBuf::from),
                database_url: database_url.map(str::to_owned),
            };
            args.database_url(demo).expect("a place")
        };
        assert_eq!(found(Some("/data"), Some("db")), "/data");
        assert_eq!(found(None, Some("db")), "db");
        assert_eq!(found(None, Some("")), "usual");
        assert_eq!(found(None, None), "usual");
    }

    fn mail(args: PlaceArgs, url: Option<&str>) -> Option<String> {
        Place::find(&PlaceArgs { mail_url: url.map(str::to_owned), ..args }, demo).ok()?.mail_url
    }

    #[test]
    fn a_mail_url_may_be_missing_beside_a_database_and_never_stands_alone() {
        assert_eq!(mail(args(None, Some("db"), Some("gateway")), Some("mail")), Some("mail".to_owned()));
        let without = Place::find(&args(None, Some("db"), Some("gateway")), demo).expect("a place");
        assert_eq!(without.mail_url, None);
        assert_eq!(mail(args(None, None, None), None), Some("usual's mail".to_owned()));
        assert_eq!(mail(args(Some("/data"), Some("db"), None), Some("mail")), Some("/data's mail".to_owned()));
        assert_eq!(mail(args(None, Some("usual"), None), Some("mail")), Some("mail".to_owned()));
        assert!(Place::find(&PlaceArgs { mail_url: Some("mail".to_owned()), ..args(None, None, None) }, demo).is_err());
    }
}
