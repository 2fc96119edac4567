//! How the knobs that hold a secret are printed: without it. Whoever logs a whole set of them gives nothing away.

use std::fmt::{Debug, Formatter, Result};

use super::{ConsoleArgs, DatabaseArgs, GatewayClientArgs, MockGatewayArgs, MockMailArgs};

impl Debug for DatabaseArgs {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("DatabaseArgs").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Debug for GatewayClientArgs {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("GatewayClientArgs").field("gateway_url", &self.gateway_url).finish_non_exhaustive()
    }
}

impl Debug for ConsoleArgs {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("ConsoleArgs").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Debug for MockGatewayArgs {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("MockGatewayArgs").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Debug for MockMailArgs {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("MockMailArgs").field("listen", &self.listen).finish_non_exhaustive()
    }
}
