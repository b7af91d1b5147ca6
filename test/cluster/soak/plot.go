package soak

import (
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
)

// These are the sizes of a chart in pixels.
const (
	width, height = 620, 90
	left, top     = 170, 16
)

// Plot draws a chart for each series, one below the other, as SVG. Grey lines mark the starts of
// the agent.
func Plot(w io.Writer, samples []Sample, series []Series) {
	end := 1.0
	if n := len(samples); n > 0 {
		end = max(end, samples[n-1].Seconds)
	}
	x := func(s Sample) float64 { return left + s.Seconds/end*(width-left-10) }
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+
		`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n", width, height*len(series)+top)
	for i, s := range series {
		values := sorted(samples, s.Name)
		most := 1.0
		if n := len(values); n > 0 {
			most = max(values[n-1]*1.05, 1e-9)
		}
		base := float64(height*(i+1)) + top - 20
		y := func(v float64) float64 { return base - v/most*(height-30) }
		fmt.Fprintf(w, `<text x="4" y="%.0f" font-weight="bold">%s</text>`+"\n", base-height+44, html.EscapeString(s.Name))
		if len(values) > 0 {
			fmt.Fprintf(w, `<text x="4" y="%.0f">%.5g to %.5g %s</text>`+"\n", base-height+60, values[0], values[len(values)-1],
				html.EscapeString(s.Unit))
		}
		fmt.Fprintf(w, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#999"/>`+"\n", left, width-10, base, base)
		life := -1
		fmt.Fprint(w, `<polyline fill="none" stroke="#06c" points="`)
		for _, p := range samples {
			fmt.Fprintf(w, "%.1f,%.1f ", x(p), y(p.Values[s.Name]))
		}
		fmt.Fprint(w, `"/>`+"\n")
		for _, p := range samples {
			if p.Life != life {
				life = p.Life
				fmt.Fprintf(w, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ccc"/>`+"\n", x(p), x(p), base, base-height+30)
			}
		}
	}
	fmt.Fprintf(w, `<text x="%d" y="%d">0 to %.0f minutes</text>`+"\n</svg>\n", left, height*len(series)+top-6, end/60)
}

// Write writes the samples as CSV.
func Write(w io.Writer, samples []Sample, series []Series) error {
	out := csv.NewWriter(w)
	head := []string{"seconds", "life"}
	for _, s := range series {
		head = append(head, s.Name)
	}
	out.Write(head) //nolint:errcheck // Error returns the error
	for _, p := range samples {
		row := slices.Grow([]string{strconv.FormatFloat(p.Seconds, 'f', 1, 64), strconv.Itoa(p.Life)}, len(series))
		for _, s := range series {
			row = append(row, strconv.FormatFloat(p.Values[s.Name], 'f', -1, 64))
		}
		out.Write(row) //nolint:errcheck
	}
	out.Flush()
	return out.Error()
}
