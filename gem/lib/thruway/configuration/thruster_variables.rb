# frozen_string_literal: true

require_relative "configuration"

module Thruway
  # The environment variables of Thruster, so that a move from Thruster deletes only a line. Names
  # with the prefix `THRUSTER_` always count. Other programs use the bare names too, so these count
  # only with `thruster` in the configuration file. Both take precedence over the file, and options
  # of the command line over both.
  class ThrusterVariables
    PREFIX = "THRUSTER_"

    # Variables with a number of seconds or bytes, and the settings that they change.
    NUMBERS = {
      "HTTP_PORT" => [:port], "HTTPS_PORT" => [:https_port], "CACHE_SIZE" => [:cache_bytes_max],
      "MAX_CACHE_ITEM_SIZE" => [:cache_item_bytes_max], "MAX_REQUEST_BODY" => [:body_bytes_max],
      "HTTP_IDLE_TIMEOUT" => [:keep_alive_seconds], "HTTP_WRITE_TIMEOUT" => [:write_seconds],
      "HTTP_READ_TIMEOUT" => %i[head_seconds body_seconds]
    }.freeze

    TEXTS = { "ACME_DIRECTORY" => :acme_directory, "EAB_KID" => :acme_eab_kid,
              "EAB_HMAC_KEY" => :acme_key, "STORAGE_PATH" => :acme_storage }.freeze

    SWITCHES = { "GZIP_COMPRESSION_ENABLED" => :compress, "LOG_REQUESTS" => :log_requests }.freeze

    # Variables without effect, each with the reason.
    IGNORED = {
      "TARGET_PORT" => "there is no second process to reach by a port",
      "X_SENDFILE_ENABLED" => "--sendfile names the folders to send files from",
      "BAD_GATEWAY_PAGE" => "no process behind this one could fail",
      "FORWARD_HEADERS" => "trusted_proxies names the proxies to believe",
      "DEBUG" => "errors are logged without it", "H2C_ENABLED" => "HTTP/2 needs no option",
      "GZIP_COMPRESSION_DISABLE_ON_AUTH" => "responses for one user are not compressed",
      "GZIP_COMPRESSION_JITTER" => "responses for one user are not compressed",
      "GZIP_COMPRESSION_EXCEPT_CONTENT_TYPES" => "compressed types are not compressed again"
    }.freeze

    # Variables for which 0 means "no limit".
    UNLIMITED = %w[MAX_REQUEST_BODY].freeze

    # Settings without effect unless a name for a certificate is given.
    OF_CERTIFICATES = %i[acme_directory acme_eab_kid acme_key acme_storage https_port].freeze

    # With `bare`, names without the prefix count as well.
    def initialize(configuration, variables = ENV, bare: false)
      @configuration = configuration
      @variables = variables
      @bare = bare
    end

    # Applies the variables, and yields a line for each variable without effect.
    def apply
      domains = value("TLS_DOMAIN").to_s.split(",").map(&:strip).reject(&:empty?)
      offer(:acme_domains, domains) if domains.any?
      TEXTS.each { |name, option| offer(option, value(name)) if value(name) }
      SWITCHES.each { |name, option| offer(option, switch(name)) if value(name) }
      NUMBERS.each { |name, options| options.each { |option| offer_number(option, name) } }
      ignored = IGNORED.filter_map { |name, why| "#{name} (#{why})" if value(name) }
      yield "variables of Thruster without effect: #{ignored.join(", ")}" if ignored.any?
    end

    private

    # The value of a variable that is set and not blank.
    def value(name)
      bare = @variables[name] if @bare
      [@variables[PREFIX + name], bare].compact.map(&:strip).find { |text| !text.empty? }
    end

    def offer(option, value)
      return if OF_CERTIFICATES.include?(option) && !@configuration.options.key?(:acme_domains)

      @configuration.offer(option, value)
    end

    def switch(name) = !%w[0 false].include?(value(name))

    def offer_number(option, name)
      text = value(name) or return
      number = Integer(text, 10, exception: false)
      raise Failure, "cannot start: #{name} is not a number: #{text}" unless number&.>=(0)

      number = Configuration::NO_LIMIT if number.zero? && UNLIMITED.include?(name)
      offer(option, number)
    end
  end
end
