package api

// Debugged is the answer to a request to add an ephemeral container to a pod: POST PathPods/NAMESPACE/NAME/debug with ?image, ?container,
// ?target, ?pullPolicy, ?command (repeated), ?stdin and ?tty.
type Debugged struct {
	Container string `json:"container"` // the name of the added container
}
