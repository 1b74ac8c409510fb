// Runs tests of the suite `http-cache-tests` against a cache, like the suite's own cli.mjs, and prints JSON: the
// tests by section, with their results. This file must be next to the folder node_modules that contains the suite.
//
// node run.mjs BASE-URL [ID...]     without ids, all tests that do not need a browser
import fetch from 'node-fetch'
import { getResults, runTests } from 'http-cache-tests/client/runner.mjs'
import sections from 'http-cache-tests/tests/index.mjs'
import surrogate from 'http-cache-tests/tests/surrogate-control.mjs'

const [base, ...ids] = process.argv.slice(2)
const wanted = test => test.browser_only !== true && (ids.length === 0 || ids.includes(test.id))
const chosen = [...sections, surrogate]
  .map(section => ({ ...section, tests: section.tests.filter(wanted) }))
  .filter(section => section.tests.length > 0)

await runTests(chosen, fetch, false, base)
const results = getResults()
const failed = id => id in results && results[id] !== true
const output = chosen.map(section => ({
  name: section.name,
  tests: section.tests.map(test => ({
    id: test.id,
    name: test.name,
    kind: test.kind || 'required',
    // The failure message; null: the test passed. A test without a result was aborted.
    failure: results[test.id] === true ? null : (results[test.id] || ['no result']).join(': '),
    // Failing tests that make this test meaningless.
    void: (test.depends_on || []).filter(failed)
  }))
}))
console.log(JSON.stringify(output))
