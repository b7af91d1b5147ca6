package keys

// Values of ConfigSource, with a kubelet's names. SourceLocal is islet's own: pods that a person
// applied at the local socket.
const (
	SourceFile  = "file"
	SourceHTTP  = "http"
	SourceAPI   = "api"
	SourceLocal = "local"
)
