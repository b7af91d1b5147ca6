// Command picture draws the text of a terminal as an SVG file: a picture for the README that any browser shows, and that is made from the
// output of a real run instead of by hand.
//
//	picture -o docs/pictures/terminal.svg <recorded
//
// The input is what programs wrote to a terminal. Of the control sequences, colours and bold text (SGR) are drawn, and all others are left
// out. The same input gives the same bytes.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The picture's measures, in pixels.
const (
	charWidth  = 8.4
	lineHeight = 20
	margin     = 20
	barHeight  = 28
	fontSize   = 14
)

// The limits of the input: a picture for a page has a few dozen lines.
const (
	maxLines   = 200
	maxColumns = 200
)

// colours are the classes of the colours that programs use, by the parameter of the control sequence.
var colours = map[int]string{31: "r", 32: "g", 33: "y", 34: "b", 36: "c", 90: "d"}

const style = `<style>.t{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d8dee9;white-space:pre}` +
	`.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.b{fill:#79c0ff}.c{fill:#76e3ea}.d{fill:#8b949e}.o{font-weight:bold}</style>`

// span is a piece of a line with one look.
type span struct {
	text, class string
}

func main() {
	to := flag.String("o", "", "the file to write")
	title := flag.String("title", "islet", "the title above the text")
	flag.Parse()
	if err := run(os.Stdin, *to, *title); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, to, title string) error {
	if to == "" {
		return fmt.Errorf("-o is missing")
	}
	lines, err := read(in)
	if err != nil {
		return err
	}
	return os.WriteFile(to, draw(lines, title), 0o644)
}

// read returns the lines of the terminal. A line that begins with "$ " is a command, and is bold.
func read(in io.Reader) ([][]span, error) {
	var lines [][]span
	s := bufio.NewScanner(in)
	for s.Scan() {
		line := strings.TrimRight(s.Text(), "\r")
		if len(lines) == maxLines {
			return nil, fmt.Errorf("the input has more than %d lines", maxLines)
		}
		spans := parse(line)
		if n := columns(spans); n > maxColumns {
			return nil, fmt.Errorf("line %d has %d columns: at most %d", len(lines)+1, n, maxColumns)
		}
		if strings.HasPrefix(line, "$ ") {
			spans = []span{{"$ ", "g"}, {strings.TrimPrefix(line, "$ "), "o"}}
		}
		lines = append(lines, spans)
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines, s.Err()
}

// parse divides a line at its control sequences.
func parse(line string) []span {
	var spans []span
	class := ""
	for line != "" {
		text, rest, found := strings.Cut(line, "\x1b[")
		if text = strings.Map(drawable, text); text != "" {
			spans = append(spans, span{text, class})
		}
		if !found {
			break
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			break
		}
		if rest[end] == 'm' {
			class = look(class, rest[:end])
		}
		line = rest[end+1:]
	}
	return spans
}

// look returns the class after a control sequence with the parameters.
func look(class, parameters string) string {
	for p := range strings.SplitSeq(parameters, ";") {
		n, _ := strconv.Atoi(p)
		switch c := colours[n]; {
		case n == 0, n == 39:
			class = ""
		case n == 1:
			class = "o"
		case c != "":
			class = c
		}
	}
	return class
}

// drawable leaves out what no SVG may contain.
func drawable(r rune) rune {
	if r < ' ' || r == 0x7f || r == utf8.RuneError {
		return -1
	}
	return r
}

func columns(spans []span) (n int) {
	for _, s := range spans {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

func draw(lines [][]span, title string) []byte {
	widest := 80
	for _, l := range lines {
		widest = max(widest, columns(l))
	}
	width, height := int(float64(widest)*charWidth)+2*margin, barHeight+len(lines)*lineHeight+2*margin
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n%s\n",
		width, height, width, height, style)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", width, height)
	for i, c := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, "<circle cx=\"%d\" cy=\"16\" r=\"6\" fill=\"%s\"/>\n", margin+i*20, c)
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"21\" text-anchor=\"middle\" class=\"t d\">%s</text>\n", width/2, html.EscapeString(title))
	for i, l := range lines {
		if len(l) == 0 {
			continue
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"t\" xml:space=\"preserve\">", margin, barHeight+margin+i*lineHeight+fontSize)
		for _, s := range l {
			if s.class == "" {
				b.WriteString(html.EscapeString(s.text))
			} else {
				fmt.Fprintf(&b, "<tspan class=\"%s\">%s</tspan>", s.class, html.EscapeString(s.text))
			}
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
