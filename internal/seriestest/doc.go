// Package seriestest records metrics that real code serves in a test. The test of the alerts (test/prometheus) replays the recordings: the
// evaluation of the alerts needs Prometheus' modules, which the tests of islet's packages do not have.
//
//	test of a package --Scrape--> test/prometheus/testdata/series/NAME.txt --> TestAlerts
package seriestest
