# frozen_string_literal: true

require_relative "configuration"

module Thruway
  # The words of a configuration file that say where a server listens, and where its operators and
  # its metrics find it.
  module ListeningWords
    # The options of `activate_control_app`.
    CONTROL_OPTIONS = %i[auth_token no_token umask data_only].freeze

    # Permissions that a umask can take away.
    PERMISSIONS = 0o777

    # A port of its own, beside those of `bind`; the host is the default one unless it is said.
    def port(number, host = nil)
      @binds << [host || @default_host, Integer(number)]
    end

    def bind(address)
      @binds << address.to_s
    end

    # Where the metrics are read, and the live page.
    def metrics(address)
      @metrics << address.to_s
    end

    # Puma's options, which become parameters of the address. `cert` and `key` may be Arrays.
    def ssl_bind(host, port, options = {})
      pairs = Array(options[:cert]).zip(Array(options[:key])).flat_map do |cert, key|
        [[:cert, cert], [:key, key]]
      end
      pairs += options.except(:cert, :key).to_a
      pairs = pairs.filter_map { |name, value| "#{name}=#{escape(value)}" unless value.nil? }
      bind("ssl://#{host}:#{port}?#{pairs.join("&")}")
    end

    def clear_binds!
      @binds.clear
    end

    def set_default_host(host)
      @default_host = host
    end

    def default_host
      @default_host || @configuration.host
    end

    # The sockets of systemd too, or `"only"` them.
    def bind_to_activated_sockets(answer = true)
      @said[:activated_sockets] = answer.to_s == "only" ? :only : answer
    end

    # Where `thruway ctl` and pumactl ask: an address, and the token that they have to know. Puma's
    # options, with braces or without. An unknown option could restrict access, so it is refused.
    def activate_control_app(url = "auto", options = {})
      url = url.to_s
      raise ArgumentError, "there is no TLS here: #{url}" if url.start_with?("ssl:")

      unknown = options.keys - CONTROL_OPTIONS
      raise ArgumentError, "activate_control_app has no #{unknown.first}:" if unknown.any?

      @said[:control] = { uri: control_url(url, options[:umask]), token: control_token(options),
                          data_only: options[:data_only] }
      @said[:counts] = true
    end

    private

    def control_token(options)
      return if options[:no_token]

      token = options[:auth_token]&.to_s || random_digits(16)
      # Every request would know it.
      raise ArgumentError, "auth_token: is empty; no_token: true needs none" if token.empty?

      token
    end

    def control_url(url, umask)
      mask = umask ? Integer(umask) : 0
      raise ArgumentError, "a umask is 0 to 0777, not #{umask}" unless (0..PERMISSIONS).cover?(mask)
      return temporary_url(0o600 & ~mask) if url == "auto"
      return url unless umask

      raise ArgumentError, "umask: is for a unix socket without mode=, not for #{url}" if
        !url.start_with?("unix:") || url.match?(/[?&]mode=/)

      "#{url}#{url.include?("?") ? "&" : "?"}umask=#{format("0%o", mask)}"
    end

    # A socket for this user alone.
    def temporary_url(mode)
      name = "thruway-#{Process.pid}-#{random_digits(4)}.sock"
      "unix://#{File.join(temporary_folder, name)}?mode=#{format("%04o", mode)}"
    end

    # As `Dir.tmpdir` finds it. `tmpdir` itself may be a gem of the application's bundle.
    def temporary_folder
      named = ENV.values_at("TMPDIR", "TMP", "TEMP").compact
      named.find { |folder| usable?(folder) } || "/tmp"
    end

    def usable?(folder)
      stat = File.stat(folder)
      stat.directory? && stat.writable? && (!stat.world_writable? || stat.sticky?)
    rescue SystemCallError
      false
    end

    def random_digits(bytes)
      Random.urandom(bytes).unpack1("H*")
    end

    # Without what has a meaning in an address.
    def escape(value)
      value.to_s.gsub(/[%&=?# ]/) { |sign| format("%%%02X", sign.ord) }
    end

    def address_of(bind)
      return bind unless bind.is_a?(Array)

      host, number = bind
      host ||= @configuration.host
      host = "[#{host}]" if host.include?(":") && !host.start_with?("[")
      "tcp://#{host}:#{number}"
    end
  end
end
