package registry

import "github.com/islet-edge/islet/internal/pattern"

// urlQueries matches the query of each URL in a text, also of a quoted one without scheme and host: an error about too many redirects
// has the Location of the last one. Registries redirect to URLs whose query contains a signature. Anyone with the signature can download
// the layer. A colon inside the query is a part of the query, for example in a time. A colon at the end of the URL is not.
var urlQueries = pattern.New(`((?:\bhttps?://|"/)[^\s?"'<>]+)\?(?:[^\s"'<>:]|:+[^\s"'<>:])*`)

// A redactedError is an error without URL queries in its text. The text becomes an event of the pod.
type redactedError struct{ error }

// WithoutQueries returns the error without the queries of URLs in its text. A nil error stays nil.
func WithoutQueries(err error) error {
	if err == nil {
		return nil
	}
	return redactedError{err}
}

func (r redactedError) Error() string {
	return urlQueries().ReplaceAllString(r.error.Error(), "$1?...")
}

func (r redactedError) Unwrap() error { return r.error }
