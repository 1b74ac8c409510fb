// What the named reasons mean for the hit ratio, and what to do. A test compares the names with those in the program.

/** The meaning of reasons, with advice for those with which the cache did not answer from what is stored. */
export const REASONS = {
  "uri-miss": ["Nothing was stored for the URL.", "New or rarely requested URLs, a purge, or evictions. The top URLs by misses show which. If they differ only in parameters such as utm_source, query_ignore leaves these out of the key."],
  "vary-miss": ["The URL is stored, but not for these request headers.", "The response's Vary names headers with many values. Normalize them, or name them in ignore_headers."],
  "stale": ["The stored response had expired.", "Longer lifetimes (Cache-Control, or `valid`), or stale-while-revalidate."],
  "partial": ["Some of the requested bytes were not stored.", "Ordinary for large files that are read in parts."],
  "miss": ["What is stored could not be used.", "See the decisions of one such URL in the X-ray."],
  "bypass": ["The configuration excludes the request from the cache.", "Check `bypass` of the route."],
  "method": ["Requests with this method are always forwarded.", "Ordinary for POST, PUT and the like."],
  "request": ["The client's Cache-Control asked for a new response.", "client_cache_control = false ignores it."],
  "set-cookie": ["The response sets a cookie, so it is not stored.", "The origin began to set cookies on shared content. Stop that at the origin, or hide the header for this route."],
  "no-store": ["The origin forbids storing (no-store).", "Check Cache-Control of the origin; a deployment may have changed it."],
  "private": ["The response is for one client only (private).", "Check Cache-Control of the origin; a deployment may have changed it."],
  "no-cache": ["The response has no-cache and no validator.", "An ETag at the origin would let Sluice store and revalidate it."],
  "no-lifetime": ["Neither the response nor the configuration gives a lifetime.", "Send Cache-Control: max-age, or set `valid` on the route."],
  "expired": ["The response was stale on arrival.", "Check Expires, Age and the clock of the origin."],
  "authorization": ["The request has Authorization, and the response does not allow sharing.", "Cache-Control: public or s-maxage at the origin allows it."],
  "unconfirmed": ["The response may be about one client only.", "Ordinary for errors after unusual request headers."],
  "vary-any": ["The response has Vary: *.", "Remove it at the origin."],
  "vary-bad": ["Vary names too many headers, or no header.", "Correct Vary at the origin."],
  "status": ["Responses with this status are not stored.", "Many errors? See the statuses and the events."],
  "too-large": ["The response is larger than max_object_size.", "Raise max_object_size, or let the origin serve ranges."],
  "until-close": ["The response has no length, so a cut one would look complete.", "Send Content-Length or chunked coding at the origin."],
  "cookie": ["The request has a cookie named in `bypass`.", "More users who are logged in, or a cookie that everybody gets."],
  "header": ["The request has a header named in `bypass`.", "Check which clients send it."],
  "query": ["The request has a query parameter named in `bypass`.", "Check which links have it."],
  "request-body": ["A GET or HEAD has a body.", "Check which client sends it."],
  "upgrade": ["The request asks for another protocol, such as WebSocket.", "Ordinary."],
  "long-header": ["A header named in Vary is too long for a shared fetch.", "Name it in ignore_headers."],
  "variants": ["The URL has too many variants.", "Vary names a header with many values."],
  "parted": ["The responses of several fetches in turn could not be used.", "See the decisions of one such URL in the X-ray."],
  "budget": ["The client's budget of fetched bytes was used up.", "Clients read slowly; see client budgets."],
  "crowded": ["The object had as many fetches as allowed.", "Many clients read different parts of one large file."],
  "lock": ["The request waited for another fetch for lock_timeout.", "The origin is slow; see its durations."],
  "unjoinable": ["Fetches can't add to the stored object.", "The origin sends no strong validator."],
  "changing": ["The object changed more than once recently.", "A deployment, or servers with different versions."],
  "flapping": ["The object's validators alternate.", "The origin's servers have different versions of it."],
  "no-ranges": ["The origin refuses requests with Range.", "Let the origin serve ranges."],
  "changed": ["The origin has another version than the stored one.", "A deployment at the origin."],
  "stale-while-revalidate": ["A stale response was served while it was revalidated."],
  "stale-while-updating": ["A stale response was served while another request revalidated it."],
  "stale-if-error": ["A stale response was served because the origin failed."],
  "connect-failed": ["A server refused the connection."],
  "connect-timeout": ["A server did not accept the connection in time."],
  "head-timeout": ["The origin sent no head in time."],
  "closed-before-head": ["The origin closed the connection before a response."],
  "error-status": ["The server answered with 500, 502, 503 or 504."],
  "retried-status": ["The server's status had the request sent to another server."],
  "body-cut": ["The origin's response broke off."],
  "body-timeout": ["The origin's response arrived too slowly."],
  "tls-failed": ["TLS with the server failed."],
  "unresolved": ["The server's name did not resolve."],
  "no-server": ["All servers are down or drained."],
  "servers-busy": ["All servers were at their limit of connections."],
  "no-route": ["No route matches the host and path."],
  "client-gone": ["The client left before the response was complete."],
  "no-room": ["There was no memory to store the response in."],
  "fetch-abandoned": ["Sluice ended the fetch: no memory, or no reader kept up."],
};

/** Reasons of fetches. Their `miss` is not that of requests. */
const FETCHES = {
  "miss": ["The first fetch for a request."],
  "gap": ["A further fetch for the same request."],
  "ahead": ["The next bytes are fetched early."],
  "resume": ["An earlier fetch ended too soon."],
  "out-of-reach": ["No fetch adds the next byte, and none may be started."],
};

/** Reasons with which a request that counts for the hit ratio is no hit. */
const OF_THE_CACHE = new Set(Object.keys(REASONS).slice(0, Object.keys(REASONS).indexOf("stale-while-revalidate")));

/** In the numbers, the prefix `fwd=` tells the ways of forwarding a request from the reasons for it. */
const FORWARDED = "fwd=";
const bare = (reason) => (isForwarding(reason) ? reason.slice(FORWARDED.length) : reason);

export const isForwarding = (reason) => reason.startsWith(FORWARDED);
export const meaning = (reason, ofFetch = false) => ((ofFetch && FETCHES[reason]) || REASONS[bare(reason)])?.[0] ?? "";
export const advice = (reason) => REASONS[bare(reason)]?.[1] ?? "";
export const lowersHitRatio = (reason) => OF_THE_CACHE.has(bare(reason));
