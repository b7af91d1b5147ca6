package keys

// These are the values of ConfigSource. A kubelet uses the same names, except for SourceLocal, the
// source of pods that were applied at the local socket.
const (
	SourceFile  = "file"
	SourceHTTP  = "http"
	SourceAPI   = "api"
	SourceLocal = "local"
)
