package cri

import "golang.org/x/time/rate"

// PullRate lets pulls begin, one after the other waits: burst at once, then so many a second.
// 0 a second: any number.
func PullRate(perSecond, burst int) *rate.Limiter {
	if perSecond <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))
}
