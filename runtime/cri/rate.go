package cri

import "golang.org/x/time/rate"

// PullRate returns a limiter for the start of pulls: burst at once, then perSecond. 0 perSecond: no
// limit.
func PullRate(perSecond, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))
}
