package api

// Debugged is the answer to a request to add an ephemeral container to a pod. The request is POST PathPods/NAMESPACE/NAME/debug. Its
// parameters are ?image, ?container, ?target, ?pullPolicy, ?command (repeated), ?stdin and ?tty.
type Debugged struct {
	Container string `json:"container"` // the name of the added container
}
