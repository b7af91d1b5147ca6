package image

import "regexp"

// queries matches the query of each URL in a text. Registries redirect to URLs whose query contains
// a signature, with which anyone can download the layer. A colon is part of the query, as in a
// time, unless it ends the URL in the text.
var queries = regexp.MustCompile(`(\bhttps?://[^\s?"'<>]+)\?(?:[^\s"'<>:]|:+[^\s"'<>:])*`)

// A redacted error has no URL queries in its text, which becomes an event of the pod.
type redacted struct{ error }

func withoutQueries(err error) error {
	if err == nil {
		return nil
	}
	return redacted{err}
}

func (r redacted) Error() string { return queries.ReplaceAllString(r.error.Error(), "$1?...") }

func (r redacted) Unwrap() error { return r.error }
