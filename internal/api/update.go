package api

// PathUpdate is the endpoint that receives another version of islet. POST ?from=FILE|URL fetches the version. POST ?back uses the
// program that the last update replaced. The other parameters are ?older, ?dryRun and ?despitePods, see UpdateOptions. The response
// consists of Progress lines. The last line is sent when the version has been fetched and tested. The trial of the version begins
// after the last line.
const PathUpdate = "/islet/v1/update"

// Update is a version that was fetched and tested.
type Update struct {
	Version string `json:"version"`
	ID      string `json:"id,omitempty"` // the ID of the version's trial in PathConfiguration; empty if there is no trial
}

// UpdateOptions contains the options of a request for an update.
type UpdateOptions struct {
	Older       bool // also accept a version that is not newer
	Dry         bool // only fetch and test the version
	Back        bool // return to the program that the last update replaced
	DespitePods bool // ignore pods, and pressures that pods cause, in the version's trial
}
