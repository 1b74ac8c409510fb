//! Tests of the admin API against its description, `GET /openapi.json`: the answers of every page, and random requests
//! that are made from the description.

mod answers;
mod description;
mod fuzz;
mod requests;
mod schema;
mod site;
