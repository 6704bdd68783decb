# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # Evaluates a `config.ru` with `Rack::Builder`, which gems extend and monitoring agents patch. The
  # application's Gemfile decides on the version of Rack, so Rack is not loaded before the
  # application does so. If the application never loads Rack, `PlainBuilder` takes the place of
  # Rack's.
  class Builder
    # Returns the application of the file at `path`, which is absolute.
    def self.load(path)
      Object.autoload(:Rack, "rack") unless Object.const_defined?(:Rack)
      # The file may be in the encoding that its magic comment names.
      script = File.binread(path).sub(/^__END__\n.*\z/mn, "").force_encoding(Encoding::UTF_8)
      # The binding defines constants at the top level, as a required file does, and sends methods
      # to the builder.
      code = "Thruway::Builder.new.instance_eval { [binding, self] }"
      scope, builder = TOPLEVEL_BINDING.eval(code)
      scope.eval(script, path)
      builder.to_app
    end

    def run(app = nil, &block)
      target.run(app || block)
    end

    def to_app = target.to_app

    private

    # The builder is chosen at the file's first directive: by then, the file has set up its bundle.
    def target
      @target ||= Object.const_defined?(:Rack) && rack? ? Rack::Builder.new : PlainBuilder.new
    end

    # `autoload?` comes first, because a reference to the constant would load Rack.
    def rack?
      Object.autoload?(:Rack).nil? && Rack.const_defined?(:Builder)
    end

    def respond_to_missing?(word, _all = false)
      target.respond_to?(word) || super
    end

    def method_missing(word, ...)
      target.respond_to?(word) ? target.public_send(word, ...) : super
    end
  end

  # The directives of a `config.ru` for applications without Rack.
  class PlainBuilder
    def initialize(default = nil, &block)
      @uses = []
      @maps = {}
      @run = default
      @warmup = nil
      @freezes = false
      instance_eval(&block) if block
    end

    def use(middleware, *arguments, **options, &block)
      seal_maps
      @uses << ->(app) { middleware.new(app, *arguments, **options, &block) }
    end

    def run(app = nil, &block)
      @run = app || block
    end

    def map(path, &block)
      @maps[path] = block
    end

    def warmup(callable = nil, &block)
      @warmup = callable || block
    end

    def freeze_app
      @freezes = true
    end

    def to_app
      seal_maps
      raise Failure, "config.ru calls neither run nor map" unless @run || @mapped

      app = freeze_if_asked(@run)
      @uses.reverse_each { |use| app = freeze_if_asked(use.call(app)) }
      @warmup&.call(app)
      app
    end

    private

    # Puts the applications mapped so far below the middleware that follows.
    def seal_maps
      return if @maps.empty?

      maps, @maps, @mapped = @maps, {}, true
      @uses << ->(app) { url_map(app, maps) }
    end

    def url_map(app, maps)
      mapped = maps.transform_values { |block| PlainBuilder.new(app, &block).to_app }
      Rack::URLMap.new(app ? { "/" => app }.merge(mapped) : mapped)
    end

    def freeze_if_asked(app)
      @freezes && app ? app.freeze : app
    end
  end
end
