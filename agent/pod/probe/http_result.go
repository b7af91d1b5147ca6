package probe

import (
	"fmt"
	"net/http"

	"github.com/islet-edge/islet/agent/pod/probe/call"
)

// httpAnswer converts a response to an answer. The statuses 200 to 399 pass.
func httpAnswer(resp call.Response) answer {
	switch {
	// The body is omitted, because it may be secret.
	case resp.Code < http.StatusOK || resp.Code >= http.StatusBadRequest:
		return answer{verdict: failedVerdict, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.Code)}
	case resp.Code >= http.StatusMultipleChoices:
		return answer{verdict: passedVerdict, warning: true, output: "Probe terminated redirects, Response body: " + resp.Body}
	}
	return answer{verdict: passedVerdict}
}
