package keys

// These are the values of ConfigSource, with a kubelet's names. Only islet has SourceLocal, for
// pods that were applied at the local socket.
const (
	SourceFile  = "file"
	SourceHTTP  = "http"
	SourceAPI   = "api"
	SourceLocal = "local"
)
