# frozen_string_literal: true

module Thruway
  # Splits a command into words as a shell does, without expansions. The library `shellwords` may be
  # a gem in the application's bundle.
  module ShellWords
    # Blanks, or a piece of a word: quoted in one way or the other, escaped, or plain.
    PIECE = /\G(?:(?<blank>\s+)|'(?<raw>[^']*)'|"(?<quoted>(?:[^"\\]|\\.)*)"|\\(?<one>.)|
              (?<plain>[^\s\\'"]+))/mx

    module_function

    def split(command)
      words = [nil]
      at = 0
      while at < command.length
        piece = PIECE.match(command, at) or raise ArgumentError, "unmatched quote: #{command}"
        piece[:blank] ? words << nil : (words[-1] = "#{words[-1]}#{text_of(piece)}")
        at = piece.end(0)
      end
      words.compact
    end

    # In double quotes, a backslash stays unless it escapes something.
    def text_of(piece)
      quoted = piece[:quoted]&.gsub(/\\([$`"\\\n])/, '\1')
      quoted || piece[:raw] || piece[:one] || piece[:plain]
    end

    private_class_method :text_of
  end
end
