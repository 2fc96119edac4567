mod gateway_dialect;
mod gateway_faults;
mod gateway_world;
