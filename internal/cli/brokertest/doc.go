// Package brokertest runs a Summa broker as a process before processes of Summa servers, which are killed, stopped and started again.
package brokertest
