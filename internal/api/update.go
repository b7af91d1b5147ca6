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

// UpdateOptions say how an archive is taken.
type UpdateOptions struct {
	Older       bool // also a version that is not newer
	Dry         bool // it is only fetched and tested
	DespitePods bool // pods, and pressures that they make, do not count in its trial
}
