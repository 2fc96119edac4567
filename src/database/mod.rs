//! The database: how we get one, connect to it and keep its schema.

pub mod embedded;

use std::path::Path;

use sqlx::{PgPool, migrate::Migrator};

/// STAND-IN, to be replaced at merge: whatever lies in `migrations/`, read at run time.
pub async fn migrate(pool: &PgPool) -> anyhow::Result<()> {
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    if migrations.exists() {
        Migrator::new(migrations).await?.run(pool).await?;
    }
    Ok(())
}
