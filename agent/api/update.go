package api

// PathUpdate is where another version of islet is handed in (POST ?from=FILE|URL, ?older,
// ?dryRun). The answer is lines of Progress, of which the last comes when it has been fetched
// and tested, before it is tried.
const PathUpdate = "/islet/v1/update"

// Update is a version that is ready.
type Update struct {
	Version string `json:"version"`
	ID      string `json:"id,omitempty"` // of its trial, among those of PathConfiguration; empty: it is not tried
}
