package keys

// Values of ConfigSource, by the names that a kubelet gives them. Local is islet's own:
// what a person applied.
const (
	SourceFile  = "file"
	SourceHTTP  = "http"
	SourceAPI   = "api"
	SourceLocal = "local"
)
