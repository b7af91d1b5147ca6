package image

import "regexp"

// queries finds the query of each URL in a text. A registry sends a client on to URLs whose
// query is a credential of its own: a signature that fetches the layer for whoever has it. A
// colon is a part of the query, as in a time, unless the text goes on behind it.
var queries = regexp.MustCompile(`(\bhttps?://[^\s?"'<>]+)\?(?:[^\s"'<>:]|:+[^\s"'<>:])*`)

// A redacted error has no query of a URL in its text, which becomes an event of the pod.
type redacted struct{ error }

func withoutQueries(err error) error {
	if err == nil {
		return nil
	}
	return redacted{err}
}

func (r redacted) Error() string { return queries.ReplaceAllString(r.error.Error(), "$1?...") }

func (r redacted) Unwrap() error { return r.error }
