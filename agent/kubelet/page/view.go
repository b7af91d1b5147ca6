package page

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// A view writes one of the pages as HTML. Links between the pages are relative, because the page may be below any path.
type view struct {
	markup
	d        *document
	r        *http.Request
	warnings bool // only warnings are listed as events
}

// names of the query's parameters
const (
	paramEvents   = "events"
	onlyWarnings  = "warnings"
	paramPrevious = "previous"
)

// respond answers a request with an HTML document. It reports an error as an HTML document too, so that a person can
// read the error.
func (p *Page) respond(w http.ResponseWriter, r *http.Request, write func(*view) error) {
	v := &view{r: r, warnings: r.URL.Query().Get(paramEvents) == onlyWarnings}
	code := http.StatusOK
	if err := write(v); err != nil {
		code = http.StatusServiceUnavailable
		if missing := notFound(""); errors.As(err, &missing) {
			code = http.StatusNotFound
		}
		v.markup = markup{}
		v.failure(err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", contentTypes[".html"])
	w.WriteHeader(code)
	w.Write(v.b)
}

// A notFound is the error for a pod that does not exist.
type notFound string

func (n notFound) Error() string { return string(n) }

// begin writes the page up to its content. If the parameter again is true, a browser without JavaScript loads the page again from
// time to time.
func (v *view) begin(title, current string, again bool) {
	d := v.d
	v.head(title, again)
	v.raw("<header>\n<h1 id=\"node\">")
	v.element("a", d.Node, href("./"))
	v.raw("</h1>\n<p id=\"about\">")
	v.text("islet ", d.Version, ", up ", ageText(d.Started, d.Now))
	v.raw("</p>\n<nav aria-label=\"Pages\">")
	for _, page := range [][2]string{{"./", "Overview"}, {"network", "Network"}} {
		here := ""
		if page[0] == current {
			here = "page"
		}
		v.element("a", page[1], href(page[0]), attribute{"aria-current", here})
	}
	v.raw("</nav>\n<p id=\"asof\">as of ")
	v.time(d.Now, d.Now.UTC().Format("15:04:05 UTC"))
	v.raw("<span id=\"age\"></span></p>\n</header>\n<p id=\"lost\" role=\"alert\" hidden></p>\n<main id=\"main\" tabindex=\"-1\">\n")
}

func (v *view) head(title string, again bool) {
	v.raw(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
`)
	v.element("title", title+" · islet")
	v.raw("\n<link rel=\"stylesheet\" href=\"page.css\">\n<script src=\"page.js\" defer></script>\n")
	if again {
		v.raw("<noscript><meta http-equiv=\"refresh\" content=\"30\"></noscript>\n")
	}
	v.raw("</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n")
}

func (v *view) finish() { v.raw("</main>\n</body>\n</html>\n") }

// failure writes a page that contains only a message.
func (v *view) failure(message string) {
	v.head("not available", true)
	v.raw(`<header><h1 id="node"><a href="./">Overview</a></h1></header>
<main id="main" tabindex="-1">
<p id="failure" class="alarm">`)
	v.text(cut(message, maxText))
	v.raw("</p>\n")
	v.finish()
}

// maxText is the maximum length of a message, in characters.
const maxText = 1000

func (v *view) time(at time.Time, text string) {
	at = at.UTC()
	v.element("time", text, attribute{"datetime", at.Format(time.RFC3339)}, attribute{"title", at.Format("2006-01-02 15:04:05 UTC")})
}

// section starts a section with a heading.
func (v *view) section(id, title string) {
	v.open("section", attribute{"id", id}, attribute{"aria-labelledby", id + "-title"})
	v.open("h2", attribute{"id", id + "-title"})
	v.text(title)
}

// A fact is a line of a list of facts.
type fact struct {
	name, text string
	bad        bool
}

func (v *view) facts(list []fact) {
	v.raw("<dl class=\"facts\">\n")
	for _, f := range list {
		if f.text == "" {
			continue
		}
		v.raw("<div>")
		v.element("dt", f.name)
		bad := ""
		if f.bad {
			bad = "bad"
		}
		v.element("dd", cut(f.text, maxText), class(bad))
		v.raw("</div>\n")
	}
	v.raw("</dl>\n")
}

// podAddress returns the relative address of the page of a pod.
func podAddress(namespace, name string, more ...string) string {
	q := url.Values{"namespace": {namespace}, "pod": {name}}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			q.Set(more[i], more[i+1])
		}
	}
	return "pod?" + q.Encode()
}

// events writes a list of events. The parameter all is the address of the page with all events. The parameter warnings is the
// address of the page with warnings only.
func (v *view) events(list []api.Event, all, warnings string, ofPod bool) {
	v.section("events", "Events")
	v.raw(" <span class=\"filter\">")
	for _, option := range []struct {
		text, to string
		chosen   bool
	}{{"all", all, !v.warnings}, {"warnings only", warnings, v.warnings}} {
		chosen := ""
		if option.chosen {
			chosen = "true"
		}
		v.element("a", option.text, href(option.to), attribute{"aria-current", chosen})
	}
	v.raw("</span></h2>\n<ol class=\"events\">\n")
	for _, e := range list {
		bad := ""
		if e.Type == "Warning" {
			bad = "warning"
		}
		v.open("li", class(bad))
		v.time(e.Last, ageText(e.Last, v.d.Now)+" ago")
		v.raw("<p>")
		v.element("b", e.Reason)
		v.text(" ", cut(e.Message, maxText))
		if e.Count > 1 {
			v.text(" (", count(int(e.Count)), " times)")
		}
		switch {
		case e.Pod != "" && !ofPod:
			v.raw(" <small>")
			v.element("a", e.Namespace+"/"+e.Pod, href(podAddress(e.Namespace, e.Pod, "container", e.Container)))
			v.raw("</small>")
		case e.Container != "":
			v.element("small", " "+e.Container)
		}
		v.raw("</p></li>\n")
	}
	v.raw("</ol>\n")
	if len(list) == 0 {
		v.raw("<p class=\"quiet\">none since the agent started</p>\n")
	}
	v.raw("</section>\n")
}

// logText converts the content of a log to the text that the page shows.
func logText(b []byte) string {
	return plain(string(bytes.ReplaceAll(bytes.ToValidUTF8(b, []byte("\uFFFD")), []byte("\r\n"), []byte("\n"))))
}
