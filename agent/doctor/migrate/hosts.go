package migrate

import (
	"fmt"
	"strings"
)

// An endpoint is a server from which the images of a registry are pulled.
type endpoint struct {
	url           string
	overridePath  bool // the URL has the whole path
	insecure      bool // the certificate is not verified
	ca, cert, key string
}

// A registry is a registry with its endpoints, which are tried in order before the server.
type registry struct {
	server    endpoint // is tried last; without a URL: the registry itself
	endpoints []endpoint
	from      []string
}

// toml returns a hosts.toml.
func (h *registry) toml() string {
	var b strings.Builder
	if h.server.url != "" {
		fmt.Fprintf(&b, "server = %s\n", quote(h.server.url))
		h.server.write(&b, "")
	}
	seen := map[string]bool{}
	for _, e := range h.endpoints {
		if seen[e.url] {
			continue // a table may be written only once
		}
		seen[e.url] = true
		fmt.Fprintf(&b, "\n[host.%s]\n", quote(e.url))
		e.write(&b, "  ")
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// write writes the settings of a server. The settings at the beginning of a hosts.toml are those of the registry's own server.
func (e endpoint) write(b *strings.Builder, indent string) {
	b.WriteString(indent + "capabilities = [\"pull\", \"resolve\"]\n")
	if e.overridePath {
		b.WriteString(indent + "override_path = true\n")
	}
	if e.insecure {
		b.WriteString(indent + "skip_verify = true\n")
	}
	if e.ca != "" {
		fmt.Fprintf(b, "%sca = %s\n", indent, quote(e.ca))
	}
	if e.cert != "" {
		fmt.Fprintf(b, "%sclient = [[%s, %s]]\n", indent, quote(e.cert), quote(e.key))
	}
}

// quote returns a basic string of TOML.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c < 0x20 || c == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
