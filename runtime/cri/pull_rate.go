package cri

import "golang.org/x/time/rate"

// PullRate returns a rate limiter for the start of pulls. The burst is at least one. If perSecond
// is 0, there is no limit.
func PullRate(perSecond, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))
}
