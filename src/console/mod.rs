//! STAND-IN, to be replaced at merge: answers health and nothing else.

use tokio_util::sync::CancellationToken;

use crate::config::ConsoleArgs;

pub async fn run(args: ConsoleArgs, stop: CancellationToken) -> anyhow::Result<()> {
    crate::serve::serve(crate::serve::bind(args.listen).await?, crate::app::health(), stop).await
}
