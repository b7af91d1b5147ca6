package poll

import (
	"context"
	"net/http"
	"time"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/retry"
)

// Run calls round for the first time after the duration first. Each call returns the delay before the next call. It returns when ctx ends.
func Run(ctx context.Context, first time.Duration, round func(context.Context) time.Duration) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait := round(ctx)
		if ctx.Err() != nil {
			return
		}
		timer.Reset(wait)
	}
}

// A Pace computes the time until the next request. It is not safe for concurrent use.
type Pace struct {
	interval time.Duration
	backoff  retry.Backoff
}

// NewPace returns a Pace for requests at the given interval. After a failure, the next request follows after a random delay of at most
// firstRetry. The maximum delay doubles with each further failure: up to shortOutage in a short outage, and up to interval in a long one. A
// shortOutage of 0 means the default of package retry.
func NewPace(interval, firstRetry, shortOutage time.Duration) *Pace {
	return &Pace{interval, retry.Backoff{FirstWindow: firstRetry, SecondWindow: shortOutage, MaxWindow: interval}}
}

// Next returns the time until the next request. The parameter retryAfter is the time that the server has requested, or 0.
func (p *Pace) Next(succeeded bool, retryAfter time.Duration) time.Duration {
	if !succeeded {
		return p.backoff.Next(retryAfter)
	}
	p.backoff.Reset()
	return p.interval - retry.RandomWait(p.interval/10)
}

// maxValidator is the maximum length of a validator. It is sent with each request.
const maxValidator = 512

// Validators identify the document that a server has sent last.
type Validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"` // the Last-Modified header
}

// entityTag matches a single entity tag (RFC 9110). A list of tags, or "*", would match later documents too.
var entityTag = pattern.New(`^(W/)?"[\x21\x23-\x7e]*"$`)

// ValidatorsOf returns the validators in the headers of a response. It ignores those that are too long, that are not valid, or that name a
// later time than the server's clock. A server could otherwise use them to make all later requests return 304.
func ValidatorsOf(h http.Header) (v Validators) {
	if text := h.Get("ETag"); len(text) <= maxValidator && entityTag().MatchString(text) {
		v.ETag = text
	}
	text := h.Get("Last-Modified")
	modified, err := http.ParseTime(text)
	if now, wrong := http.ParseTime(h.Get("Date")); err == nil && (wrong != nil || !modified.After(now)) {
		v.Modified = text
	}
	return v
}

// IsZero reports whether there are no validators. A request is then not conditional.
func (v Validators) IsZero() bool { return v == Validators{} }

// AddTo makes a request conditional: the server answers 304 if it still has the same document.
func (v Validators) AddTo(h http.Header) {
	if v.ETag != "" {
		h.Set("If-None-Match", v.ETag)
	}
	if v.Modified != "" {
		h.Set("If-Modified-Since", v.Modified)
	}
}
