package page

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// bytesText returns a number of bytes with a unit.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	if n >= 100 || i == 0 {
		return fmt.Sprintf("%.0f %s", n, units[i])
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

// coresText formats a number of CPU cores. If the number is less than one, it uses Kubernetes'
// notation.
func coresText(n float64) string {
	if n < 0.9995 {
		return strconv.Itoa(int(math.Round(n*1000))) + "m"
	}
	return fmt.Sprintf("%.2f", n)
}

// percent returns a part of an amount as a percentage of the whole amount. If the whole amount is unknown, it returns
// "".
func percent(part, whole float64) string {
	if whole <= 0 {
		return ""
	}
	p := part / whole * 100
	if p >= 0.05 && p < 0.95 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", p)
}

// ageText returns the time between two times in kubectl's format. If the earlier time is unknown, it returns "".
func ageText(from, now time.Time) string {
	if from.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(from)))
}

// exitText describes the end of a container. The text omits the kubelet's reason if the reason contains no more
// information than the exit code.
func exitText(e *exit, now time.Time) string {
	text := "exit code " + strconv.Itoa(int(e.Code))
	if e.Reason != "" && e.Reason != "Error" && e.Reason != "Completed" {
		text += " (" + e.Reason + ")"
	}
	if age := ageText(e.At, now); age != "" {
		text += ", " + age + " ago"
	}
	return text
}

// originText describes the source of a pod, and the file or URL if it is known.
func originText(source, origin string) string {
	switch source {
	case "file":
		return orText("file", origin)
	case "http":
		return orText("URL", origin)
	case "local":
		return "islet apply"
	case "api":
		return "API server"
	}
	return orText(source, origin)
}

func orText(word, origin string) string {
	if origin == "" {
		return word
	}
	return word + " " + origin
}
