//! Objects in memory: table, blocks, ledger.
