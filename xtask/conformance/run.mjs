// Runs tests of the suite `http-cache-tests` against a cache, as the suite's own cli.mjs does, and prints JSON:
// what there is, by section, with what came of it. Lies beside the folder node_modules that holds the suite.
//
// node run.mjs BASE-URL [ID...]     without ids, all tests that a cache between client and origin can be asked
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
const told = chosen.map(section => ({
  name: section.name,
  tests: section.tests.map(test => ({
    id: test.id,
    name: test.name,
    kind: test.kind || 'required',
    // Why it failed; null: it passed. A test without a result broke off.
    failure: results[test.id] === true ? null : (results[test.id] || ['no result']).join(': '),
    // Tests of things without which this one says nothing, and which are not so.
    void: (test.depends_on || []).filter(failed)
  }))
}))
console.log(JSON.stringify(told))
