# frozen_string_literal: true

require "socket"

# Ports for servers that cannot choose one themselves.
module Ports
  RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
  # The system gives ports from here on to sockets that ask for any, such as those of clients.
  SYSTEM_MIN = File.read(RANGE_FILE).to_i
  # If the system leaves too few ports, the range covers all ports.
  RANGE = SYSTEM_MIN > 12_000 ? (10_000...SYSTEM_MIN) : (10_000..60_000)

  @claims = []

  # Returns a TCP port at which no process listens. A UDP socket at the same port claims the port,
  # so that no parallel test gets it before the server listens.
  def self.free_port
    loop do
      port = Random.rand(RANGE)
      claim = UDPSocket.new
      claim.bind("127.0.0.1", port)
      TCPServer.open("127.0.0.1", port).close
      @claims << claim
      return port
    rescue Errno::EADDRINUSE
      claim.close
    end
  end

  def free_port = Ports.free_port
end
