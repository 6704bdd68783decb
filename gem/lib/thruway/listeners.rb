# frozen_string_literal: true

require_relative "../thruway"
require_relative "failure"

module Thruway
  # The sockets that a server listens on. Workers inherit their descriptors.
  class Listeners
    HINTS = {
      "in_use" => "another process listens there; stop it, or choose another port with -p",
      "denied" => "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose one above"
    }.freeze

    # Addresses as they are shown: with the ports that the system chose.
    attr_reader :descriptors, :addresses

    def initialize(uris)
      @owner = Process.pid
      @descriptors = []
      @addresses = []
      uris.each { |uri| open(uri) }
    end

    # Closes them. The files of unix sockets go with the process that made them.
    def close
      @descriptors.each { |descriptor| IO.for_fd(descriptor).close }
      paths = @addresses.filter_map { |address| address[%r{\Aunix://(.*)}, 1] }
      File.delete(*paths.select { |path| File.socket?(path) }) if Process.pid == @owner
      @descriptors = []
    end

    private

    def open(uri)
      descriptor, address, kind = Engine.listen(uri)
      raise Failure.new(address, hint: HINTS[kind]) unless descriptor

      @descriptors << descriptor
      @addresses << address
    end
  end
end
